# frozen_string_literal: true

require_relative "../support/failure"
require_relative "../support/signals"
require_relative "inheritance"

module Thruway
  # Replaces a server with its successor in the same process: `exec` runs the server's command
  # again, with the listeners, the workers and the idle connections handed over. Before that, a
  # trial runs the command in a separate process, which boots the application and ends.
  class HotRestart
    # The variable that marks a trial. Its value is the class of the server to replace.
    TRIAL = "THRUWAY_TRIAL"

    # The niceness of the trial relative to the server, whose clients take precedence. Linux then
    # gives the trial a third of a worker's share of a busy processor.
    TRIAL_NICENESS = 5

    # The trial may take three times as long as the boot of a worker, because of its niceness.
    TRIAL_BOOTS = 3

    # Variables that the next program must not inherit.
    OWN_VARIABLES = [Inheritance::VARIABLE, TRIAL, "THRUWAY_APPLICATION", "THRUWAY_HINT"].freeze

    # Reads the words and the variables with which this process was started. Must be called before
    # the process sets its title, which overwrites both. The texts are bytes that may be invalid in
    # every encoding.
    def self.of_this_process(command = nil, folder: logical_folder)
      words = command || File.binread("/proc/self/cmdline").split("\0")
      variables = File.binread("/proc/self/environ").split("\0").to_h do |variable|
        name, _, value = variable.partition("=")
        [name, value]
      end
      new(words, variables.except(*OWN_VARIABLES), folder)
    end

    # The current folder by the shell's name. A symbolic link in the name may lead to another
    # release later.
    def self.logical_folder
      named = ENV.fetch("PWD", "")
      is_same = !named.empty? && File.identical?(named, ".")
      is_same ? named : Dir.pwd
    end

    attr_writer :words

    def initialize(words, variables, folder)
      @words = words
      @variables = variables
      @folder = folder
    end

    # Starts a trial of the server that is to succeed `server`. Returns the number of the trial's
    # process, or nil on failure.
    def start_trial(server)
      variables = @variables.merge(TRIAL => server.class.name)
      trial = spawn(variables, *command, chdir: @folder, unsetenv_others: true, in: "/dev/null")
      trial.tap { lower_priority(trial) }
    rescue SystemCallError => e
      Signals.say(Failure.text("cannot start ", @words.first, ": ", e.message))
      nil
    end

    # The time limit of a trial.
    def trial_seconds(configuration) = TRIAL_BOOTS * configuration.worker_boot_seconds

    # Becomes the next server, which inherits `data`. If the block returns true, the server is
    # stopping, and nothing happens.
    def become_next(kept: [], **data)
      Signals.between_programs do
        next if yield

        variables, descriptors = Inheritance.leave(**data)
        kept.each { |number| descriptors[number] = number }
        variables = @variables.merge("PWD" => @folder, **variables)
        exec(variables, *command, chdir: @folder, unsetenv_others: true, **descriptors)
      end
    rescue SystemCallError => e
      raise Failure, Failure.text("cannot start ", @words.first, ": ", e.message)
    end

    private

    # Lowers the trial's priority, so that the trial does not slow down the serving process.
    def lower_priority(trial)
      nice = Process.getpriority(Process::PRIO_PROCESS, 0) + TRIAL_NICENESS
      Process.setpriority(Process::PRIO_PROCESS, trial, nice)
    rescue SystemCallError
      # The trial has ended. Its status is collected as usual.
      nil
    end

    # The first word, as a pair, keeps Ruby from starting a shell for a command of one word.
    def command = [[@words.first, @words.first], *@words.drop(1)]
  end
end

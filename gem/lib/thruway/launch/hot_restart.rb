# frozen_string_literal: true

require_relative "../support/failure"
require_relative "../support/signals"
require_relative "inheritance"

module Thruway
  # A server that becomes its own successor. The command that started it is run again in the same
  # process, and finds the listeners, the workers and the idle connections. Before that, the command
  # is tried in a process of its own, which boots the application and ends.
  class HotRestart
    # Set for the trial, to the class of the server that is to be followed.
    TRIAL = "THRUWAY_TRIAL"

    # How much nicer the trial is than the server, whose clients come first. Linux gives it a third
    # of a worker's share of a busy processor then.
    TRIAL_NICENESS = 5

    # So it has three times as long as a worker for its boot.
    TRIAL_BOOTS = 3

    # What is not handed on.
    OWN_VARIABLES = [Inheritance::VARIABLE, TRIAL, "THRUWAY_APPLICATION", "THRUWAY_HINT"].freeze

    # What Linux shows of how this process was started, before it gives itself a title. Bytes: words
    # and variables may be no text in any encoding.
    def self.of_this_process(command = nil, folder: logical_folder)
      words = command || File.binread("/proc/self/cmdline").split("\0")
      variables = File.binread("/proc/self/environ").split("\0").to_h do |variable|
        name, _, value = variable.partition("=")
        [name, value]
      end
      new(words, variables.except(*OWN_VARIABLES), folder)
    end

    # The current folder as it was named: a link in it may lead to another release later.
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

    # Starts the trial of a successor to `server`, and answers with its process number.
    def try(server)
      variables = @variables.merge(TRIAL => server.class.name)
      trial = spawn(variables, *command, chdir: @folder, unsetenv_others: true, in: "/dev/null")
      trial.tap { give_way(trial) }
    rescue SystemCallError => e
      Signals.say(Failure.text("cannot start ", @words.first, ": ", e.message))
      nil
    end

    # How long a trial may take.
    def trial_seconds(configuration) = TRIAL_BOOTS * configuration.worker_boot_seconds

    # Becomes the next server, to which `data` is left, unless the block says that this one is to
    # stop.
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

    def give_way(trial)
      nice = Process.getpriority(Process::PRIO_PROCESS, 0) + TRIAL_NICENESS
      Process.setpriority(Process::PRIO_PROCESS, trial, nice)
    rescue SystemCallError
      # It has ended: that is heard of.
      nil
    end

    # Without a shell, whatever the words are.
    def command = [[@words.first, @words.first], *@words.drop(1)]
  end
end

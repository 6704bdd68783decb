# frozen_string_literal: true

require_relative "../support/failure"
require_relative "../support/signals"

module Thruway
  # The process that obtains and renews the certificates of a server: `thruway certificate-agent`.
  # The agent ends with this process, and is restarted if it ends earlier.
  class CertificateAgent
    # The pause before a restart of an agent that has ended.
    RESTART_SECONDS = 10

    # The time in which an agent must end before it is killed.
    END_SECONDS = 2

    # The interval between two checks that an agent with an open output still runs.
    CHECK_SECONDS = 60

    # The addresses to listen on.
    attr_reader :addresses

    # Starts the agent, which checks the settings. `binds` and `port` are the configured addresses.
    def initialize(configuration, binds:, port:)
      @words = [configuration.program || self.class.program, "certificate-agent",
                "--parent", Process.pid.to_s, *binds.flat_map { |uri| ["--bind", uri] },
                *(["--port", port.to_s] if port), *configuration.acme_words]
      @variables = { "THRUWAY_ACME_EAB_KEY" => configuration.acme_key }.compact
      @owner = Process.pid
      # The agent has printed the reason.
      start or exit(Failure::STATUS)
    end

    # Returns the command `thruway` that belongs to this gem: beside the extension, in the gem, or
    # on the PATH.
    def self.program
      extension = $LOADED_FEATURES.find { |path| path.end_with?("/thruway/thruway.so") }
      folders = extension ? [File.expand_path("../../..", extension)] : []
      folders << File.expand_path("../../../../thruway/bin", __dir__)
      folders += ENV.fetch("PATH", "").b.split(":")
      folders.map { |folder| File.join(folder.b, "thruway") }
             .find { |path| File.file?(path) && File.executable?(path) } ||
        raise(Failure.new("cannot obtain certificates: the command thruway is not found",
                          hint: "put its folder on the PATH"))
    end

    # Lets the agent begin, once the server can answer challenges.
    def begin
      go
      @keeper = Thread.new { keep }
    end

    # Ends the agent. Does nothing in any other process than the agent's owner.
    def stop
      return unless @owner == Process.pid && @pid

      @is_stopping = true
      @keeper&.kill
      Process.kill("TERM", @pid)
      limit = now + END_SECONDS
      sleep 0.01 until reaped?(Process::WNOHANG) || now > limit
      Process.kill("KILL", @pid) && reaped? if @pid
    rescue Errno::ESRCH
      nil
    end

    private

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    # Starts a process, and reads the addresses that it prints. Returns nil if the process has
    # ended. The agent keeps its output open as long as it runs.
    def start
      input, @input = IO.pipe
      @output, its_output = IO.pipe
      @pid = spawn(@variables, *@words, in: input, out: its_output)
      [input, its_output].each(&:close)
      @addresses = @output.each_line(chomp: true).take_while { |line| !line.empty? }
      @addresses.any? || (reaped? && nil)
    rescue SystemCallError => e
      Signals.say("cannot start #{@words.first}: #{e.message}")
      @pid = nil
    ensure
      [input, its_output].each { |io| io&.close }
    end

    def go
      @input.write("begin\n")
      @input.close
    rescue SystemCallError
      # The agent has ended, as `keep` will notice.
      nil
    end

    # Restarts the agent whenever it has ended.
    def keep
      Thread.current.name = "thruway-certificates"
      until @is_stopping
        wait_for_end
        Signals.say("the agent for certificates has ended; starting another")
        sleep RESTART_SECONDS
        sleep RESTART_SECONDS until start
        go
      end
    end

    # Waits until the output ends. A thread that waited for the process would keep Ruby 3.1 and 3.2
    # from reporting the ends of workers to the supervisor. A worker that was forked in the middle
    # of `start` keeps the pipe open, so the process is checked at intervals as well.
    def wait_for_end
      nil until IO.select([@output], nil, nil, CHECK_SECONDS) || reaped?(Process::WNOHANG)
      @output.close
      reaped?
    end

    # Waits for the end of the process, whose status a supervisor may have collected already.
    def reaped?(flags = 0)
      return true unless @pid

      Process.wait(@pid, flags).nil? ? false : (@pid = nil; true)
    rescue Errno::ECHILD
      # The supervisor collects the status of every child, so the process has ended.
      @pid = nil
      true
    end
  end
end

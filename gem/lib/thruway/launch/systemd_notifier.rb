# frozen_string_literal: true

require_relative "../support/bare_socket"

module Thruway
  # Notifies systemd of the server's state (`Type=notify`, `Type=notify-reload`, `WatchdogSec=`);
  # see sd_notify(3). Without systemd, every method does nothing.
  class SystemdNotifier
    VARIABLES = %w[NOTIFY_SOCKET WATCHDOG_USEC WATCHDOG_PID].freeze
    # The time for which a state waits for room in systemd's queue. A systemd that hangs must not
    # stop the server.
    PATIENCE_SECONDS = 5
    RETRY_SECONDS = 0.01

    # Reads and removes the variables, which are meant for this process alone.
    def self.take
      path, period, pid = VARIABLES.map { |name| ENV.delete(name) }
      new(path, period.to_i, pid)
    end

    # The seconds between two keep-alive messages; nil if systemd expects none.
    attr_reader :period

    def initialize(path, microseconds = 0, pid = nil, patience_seconds: PATIENCE_SECONDS)
      @path = path.sub(/\A@/, "\0") unless path.to_s.empty?
      @patience_seconds = patience_seconds
      wanted = @path && microseconds.positive? && (pid.nil? || pid.to_i == Process.pid)
      @period = microseconds / 2e6 if wanted
      @alive_at = 0
    end

    def ready(status = nil) = say("READY=1", *status_line(status))

    # Reports that a reload or a restart has begun. `ready` reports its end.
    def reloading
      microseconds = Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond)
      say("RELOADING=1", "MONOTONIC_USEC=#{microseconds}")
    end

    def stopping = say("STOPPING=1")

    def status(text) = say(*status_line(text))

    # Sends a keep-alive message if one is due. While systemd's queue is full, others wait there.
    def alive
      return if @period.nil? || now < @alive_at + (@period / 2)

      @alive_at = now
      say("WATCHDOG=1", patience_seconds: 0)
    end

    # Sends keep-alive messages from a thread while the block runs.
    def while_alive
      return yield unless @period

      thread = Thread.new do
        loop do
          alive
          sleep @period
        end
      end
      yield
    ensure
      thread&.kill
    end

    private

    def status_line(text) = text ? ["STATUS=#{text}"] : []

    def say(*lines, patience_seconds: @patience_seconds)
      return if @path.nil? || lines.empty?

      text, deadline = "#{lines.join("\n")}\n", now + patience_seconds
      sleep RETRY_SECONDS while deliver(text) == :wait_writable && now < deadline
    rescue SystemCallError, IOError
      # The server continues without systemd.
      nil
    end

    # Returns `:wait_writable` if systemd's queue is full.
    def deliver(text)
      @socket ||= Socket.new(:UNIX, :DGRAM)
      BareSocket.send_datagram(@socket, text, Socket.sockaddr_un(@path))
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end

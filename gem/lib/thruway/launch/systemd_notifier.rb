# frozen_string_literal: true

require_relative "../support/bare_socket"

module Thruway
  # Notifies systemd of the server's state (`Type=notify`, `Type=notify-reload`, `WatchdogSec=`);
  # see sd_notify(3). Without systemd, every method does nothing.
  class SystemdNotifier
    VARIABLES = %w[NOTIFY_SOCKET WATCHDOG_USEC WATCHDOG_PID].freeze

    # Reads and removes the variables, which are meant for this process alone.
    def self.take
      path, period, pid = VARIABLES.map { |name| ENV.delete(name) }
      new(path, period.to_i, pid)
    end

    # The seconds between two keep-alive messages; nil if systemd expects none.
    attr_reader :period

    def initialize(path, microseconds = 0, pid = nil)
      @path = path.sub(/\A@/, "\0") unless path.to_s.empty?
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

    # Sends a keep-alive message if one is due.
    def alive
      now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      return if @period.nil? || now < @alive_at + (@period / 2)

      @alive_at = now
      say("WATCHDOG=1")
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

    def say(*lines)
      return if @path.nil? || lines.empty?

      @socket ||= Socket.new(:UNIX, :DGRAM)
      BareSocket.send_datagram(@socket, "#{lines.join("\n")}\n", Socket.sockaddr_un(@path))
    rescue SystemCallError, IOError
      # The server continues without systemd.
      nil
    end
  end
end

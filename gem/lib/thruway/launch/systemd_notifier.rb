# frozen_string_literal: true

require_relative "../support/bare_socket"

module Thruway
  # What systemd is told (`Type=notify`, `Type=notify-reload`, `WatchdogSec=`); see sd_notify(3).
  # Without systemd it does nothing.
  class Notify
    VARIABLES = %w[NOTIFY_SOCKET WATCHDOG_USEC WATCHDOG_PID].freeze

    # The variables are for this process: what it starts is not to see them.
    def self.take
      path, period, pid = VARIABLES.map { |name| ENV.delete(name) }
      new(path, period.to_i, pid)
    end

    # Seconds between two signs of life; nil if none are wanted.
    attr_reader :period

    def initialize(path, microseconds = 0, pid = nil)
      @path = path.sub(/\A@/, "\0") unless path.to_s.empty?
      wanted = @path && microseconds.positive? && (pid.nil? || pid.to_i == Process.pid)
      @period = microseconds / 2e6 if wanted
      @alive_at = 0
    end

    def ready(status = nil) = say("READY=1", *status_line(status))

    # A configuration is read again, or the server restarts; `ready` ends that.
    def reloading
      microseconds = Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond)
      say("RELOADING=1", "MONOTONIC_USEC=#{microseconds}")
    end

    def stopping = say("STOPPING=1")

    def status(text) = say(*status_line(text))

    # A sign of life, if it is time for one.
    def alive
      now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      return if @period.nil? || now < @alive_at + (@period / 2)

      @alive_at = now
      say("WATCHDOG=1")
    end

    # Gives signs of life by a thread of its own while the block runs.
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
      # Nothing depends on it here.
      nil
    end
  end
end

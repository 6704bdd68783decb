# frozen_string_literal: true

require_relative "../server/listeners"
require_relative "../support/bare_socket"
require_relative "../support/load_signal"

module Thruway
  # Responds to HAProxy's agent check with the share of its weight that this server requests
  # (`agent_check`). Runs in threads of the supervisor, or of the only process if there is no
  # supervisor.
  class AgentCheck
    # Opens the agent check of the configuration. Returns nil if none is configured.
    def self.open(configuration)
      new(configuration) if configuration.agent_check
    end

    def initialize(configuration)
      @signal = configuration.load_signal
      @listeners = Listeners.new([configuration.agent_check])
      close_in_workers(configuration)
    end

    # Makes workers close the sockets.
    def close_in_workers(configuration)
      configuration.hooks[:before_worker_boot].unshift(->(*) { forget })
    end

    # Starts to respond. The block returns the server's counters as JSON.
    def start(&stats)
      sockets = @listeners.descriptors.map do |descriptor|
        Socket.for_fd(descriptor).tap { |socket| socket.autoclose = false }
      end
      @threads = [@signal.start(&stats), Thread.new { serve(sockets) }]
    end

    # Makes further responses request no load, because the server is about to stop.
    def announce_end = @is_ending = true

    def close
      @threads&.each(&:kill)
      @listeners.close
    end

    private

    # Closes the sockets in a child, once. In a child of the child, the descriptors may belong to
    # other files.
    def forget
      return if @is_forgotten

      @is_forgotten = true
      @listeners.descriptors.each { |descriptor| IO.for_fd(descriptor).close }
    end

    # Sends a line on each connection. The write does not block, because a line fits into any
    # socket's buffer.
    def serve(sockets)
      loop do
        readable, = IO.select(sockets)
        socket = BareSocket.accept(readable.first) or next
        socket.write_nonblock("#{@is_ending ? 0 : @signal.weight_percent}%\n")
        socket.close
      rescue SystemCallError
        socket.close if socket.is_a?(Socket)
        sleep LoadSignal::SAMPLE_SECONDS
      end
    end
  end
end

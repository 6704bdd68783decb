# frozen_string_literal: true

require_relative "../server/listeners"
require_relative "../support/bare_socket"

module Thruway
  # Tells HAProxy's agent check how much of its weight this server wants (`agent_check`). A thread
  # of the supervisor responds, or of the process itself where there is no supervisor.
  class AgentCheck
    # As `configuration` has it; nil if it has none.
    def self.open(configuration)
      new(configuration) if configuration.agent_check
    end

    def initialize(configuration)
      @signal = configuration.load_signal
      @listeners = Listeners.new([configuration.agent_check])
      spare(configuration)
    end

    # Workers have nothing to do with it.
    def spare(configuration)
      configuration.hooks[:before_worker_boot].unshift(->(*) { forget })
    end

    # Responds from now on. The block gives what the server has counted, as JSON.
    def start(&stats)
      sockets = @listeners.descriptors.map do |descriptor|
        Socket.for_fd(descriptor).tap { |socket| socket.autoclose = false }
      end
      @threads = [@signal.start(&stats), Thread.new { serve(sockets) }]
    end

    # The server stops: it wants nothing more.
    def announce_end = @is_ending = true

    def close
      @threads&.each(&:kill)
      @listeners.close
    end

    private

    # In a child, once.
    def forget
      return if @is_forgotten

      @is_forgotten = true
      @listeners.descriptors.each { |descriptor| IO.for_fd(descriptor).close }
    end

    # A line on each connection, which fits into any socket's buffer.
    def serve(sockets)
      loop do
        readable, = IO.select(sockets)
        socket = BareSocket.accept(readable.first) or next
        socket.write_nonblock("#{@is_ending ? 0 : @signal.weight_percent}%\n")
        socket.close
      rescue SystemCallError
        socket.close if socket.is_a?(Socket)
        sleep LoadSignal::LOOK_SECONDS
      end
    end
  end
end

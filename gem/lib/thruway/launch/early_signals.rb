# frozen_string_literal: true

module Thruway
  # Queues the signals that arrive before a server can follow them. After `exec`, ignored signals
  # stay ignored and all others have their default action, which is to end the process for most. So
  # this file is loaded before all others, and requires none.
  module EarlySignals
    # Signals by which operators give orders to a server.
    ORDERS = %w[HUP USR1 USR2 URG TTIN TTOU PWR].freeze

    # Signals that stop a server. They are queued only in a hot restart, where inherited workers
    # have requests to finish. Otherwise they end the process at once.
    STOPS = %w[TERM INT QUIT].freeze

    # Its value begins with the number of the process that a hot restart goes on in.
    INHERITANCE = "THRUWAY_INHERITANCE"

    @names = []

    class << self
      def begin
        names = ENV[INHERITANCE].to_i == Process.pid ? ORDERS + STOPS : ORDERS
        names.each { |name| Signal.trap(name) { @names << name } }
      end

      # Sends the queued signals again, to the handlers that are installed now.
      def replay
        while (name = @names.shift)
          Process.kill(name, Process.pid)
        end
      end
    end
  end

  EarlySignals.begin
end

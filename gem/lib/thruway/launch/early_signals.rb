# frozen_string_literal: true

module Thruway
  # Queues the signals that arrive before a server can follow them. After `exec`, ignored signals
  # stay ignored, and all others have their default action, which mostly ends the process. This file
  # is therefore loaded before all others, and requires none.
  module EarlySignals
    # Signals by which operators give orders to a server.
    ORDERS = %w[HUP USR1 USR2 URG TTIN TTOU PWR].freeze

    # Signals that stop a server. Only a hot restart queues them, because inherited workers have
    # requests to finish. Otherwise the signals end the process at once.
    STOPS = %w[TERM INT QUIT].freeze

    # The variable of a hot restart. The value begins with the number of the process that continues.
    INHERITANCE = "THRUWAY_INHERITANCE"

    @names = []

    class << self
      def begin
        names = ENV[INHERITANCE].to_i == Process.pid ? ORDERS + STOPS : ORDERS
        names.each { |name| Signal.trap(name) { @names << name } }
      end

      # Sends the queued signals again, to the handlers that are now installed.
      def replay
        while (name = @names.shift)
          Process.kill(name, Process.pid)
        end
      end
    end
  end

  EarlySignals.begin
end

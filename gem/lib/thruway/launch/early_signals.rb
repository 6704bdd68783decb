# frozen_string_literal: true

module Thruway
  # Keeps the signals that come before a server can follow them. A program begins with those ignored
  # that its predecessor ignored, and all others have their default action: most of them would end
  # it. So this is loaded before anything else, and needs nothing.
  module EarlySignals
    # What operators ask of a server.
    ORDERS = %w[HUP USR1 USR2 URG TTIN TTOU PWR].freeze

    # Those that stop the next server of a restart in good order: workers serve meanwhile. Without
    # a server before it, Ruby ends at once.
    STOPS = %w[TERM INT QUIT].freeze

    # Begins with the number of the process that goes on.
    INHERITANCE = "THRUWAY_INHERITANCE"

    @names = []

    class << self
      def begin
        names = ENV[INHERITANCE].to_i == Process.pid ? ORDERS + STOPS : ORDERS
        names.each { |name| Signal.trap(name) { @names << name } }
      end

      # Sends them again, to the handlers that are there now.
      def replay
        while (name = @names.shift)
          Process.kill(name, Process.pid)
        end
      end
    end
  end

  EarlySignals.begin
end

# frozen_string_literal: true

module Thruway
  # What signals do to a server.
  module Signals
    module_function

    # The first TERM or INT stops in good order; the next INT at once.
    def trap_stop(&stop)
      asked = false
      Signal.trap("TERM", &stop)
      Signal.trap("INT") do
        exit!(130) if asked
        asked = true
        stop.call
      end
    end

    # For a process that decides for itself what it does with them.
    def restore
      %w[TERM INT CHLD].each { |name| Signal.trap(name, "DEFAULT") }
    end
  end
end

# frozen_string_literal: true

module Thruway
  # What signals do to a server. None but those that stop it may end it.
  module Signals
    # What Puma does on them, and this server does not.
    NOT_YET = {
      "USR1" => "workers are not restarted one by one yet; stop the server and start it anew",
      "USR2" => "the server does not restart by itself yet; stop it and start it anew",
      "TTIN" => "the number of workers stays as it was at the start",
      "TTOU" => "the number of workers stays as it was at the start"
    }.freeze

    module_function

    # The first TERM, INT or QUIT stops in good order; the next INT at once.
    def trap_stop(&stop)
      asked = false
      %w[TERM QUIT].each { |name| Signal.trap(name, &stop) }
      Signal.trap("INT") do
        exit!(130) if asked
        asked = true
        stop.call
      end
    end

    # The signals that operators send to servers: HUP calls the block, PWR shows what threads do.
    def trap_others(&hang_up)
      Signal.trap("HUP", &hang_up)
      Signal.trap("PWR") { write(backtraces) }
      NOT_YET.each do |name, text|
        Signal.trap(name) { write("thruway: #{name}: #{text}\n") }
      end
    end

    # For a process that decides for itself what it does with them.
    def restore
      %w[TERM INT QUIT CHLD].each { |name| Signal.trap(name, "DEFAULT") }
    end

    # What every thread is in the middle of.
    def backtraces
      Thread.list.map do |thread|
        name = thread.name || thread.inspect
        lines = thread.backtrace || ["it has ended"]
        "thruway: thread #{name}\n#{lines.map { |line| "  #{line}\n" }.join}"
      end.join
    end

    # In one piece, and without a lock, which a trap could not have.
    def write(text)
      STDERR.syswrite(text)
    rescue SystemCallError, IOError
      nil
    end
  end
end

# frozen_string_literal: true

module Thruway
  # What signals do to a server. None but those that stop it may end it.
  module Signals
    # What is asked of a server by a signal.
    ORDERS = { "HUP" => :reload, "USR1" => :phased, "USR2" => :hot, "URG" => :refork,
               "TTIN" => :more, "TTOU" => :fewer }.freeze

    # What a worker is told by its supervisor: others go on with its connections, or all end soon.
    WORKER_ORDERS = { "USR1" => :retire, "URG" => :announce_end }.freeze

    module_function

    # TERM, INT and QUIT stop in good order; the second INT at once.
    def trap_stop(&stop)
      asked = false
      %w[TERM QUIT].each { |name| Signal.trap(name, &stop) }
      Signal.trap("INT") do
        exit!(130) if asked
        asked = true
        stop.call
      end
    end

    # The signals that operators send to servers: the block is given what is asked for; PWR shows
    # what threads do.
    def trap_orders(orders = ORDERS)
      orders.each { |name, order| Signal.trap(name) { yield order } }
      Signal.trap("PWR") { write(backtraces) }
    end

    # For a process that decides for itself what it does with them.
    def restore
      %w[TERM INT QUIT CHLD].each { |name| Signal.trap(name, "DEFAULT") }
      (ORDERS.keys - ["HUP"]).each { |name| Signal.trap(name, "IGNORE") }
    end

    # What every thread is in the middle of.
    def backtraces
      Thread.list.map do |thread|
        name = thread.name || thread.inspect
        lines = thread.backtrace || ["it has ended"]
        "thruway: thread #{name}\n#{lines.map { |line| "  #{line}\n" }.join}"
      end.join
    end

    # A line of the server's own. A log that nothing reads ends no server.
    def say(text) = write("thruway: #{text}\n")

    # In one piece, and without a lock, which a trap could not have.
    def write(text)
      STDERR.syswrite(text)
    rescue SystemCallError, IOError
      nil
    end
  end
end

# frozen_string_literal: true

module Thruway
  # What signals do to a server. None but those that stop it may end it.
  module Signals
    # What is asked of a server by a signal.
    ORDERS = { "HUP" => :reload, "USR1" => :phased, "USR2" => :hot, "URG" => :refork,
               "TTIN" => :more, "TTOU" => :fewer }.freeze

    # What a worker is told by its supervisor: others go on with its connections, or all end soon.
    WORKER_ORDERS = { "USR1" => :retire, "URG" => :announce_end }.freeze

    # While the process becomes another program: these do no harm there until it follows them.
    IGNORED = [*ORDERS.keys, "PWR"].freeze

    STOPS = %w[TERM INT QUIT].freeze

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

    # Adds an order to those that wait, unless the same order waits already.
    def queue(orders, order)
      orders << order if %i[more fewer].include?(order) || !orders.include?(order)
    end

    # For a process that decides for itself what it does with them.
    def restore
      [*STOPS, "CHLD"].each { |name| Signal.trap(name, "DEFAULT") }
      pass_over(ORDERS.keys - ["HUP"])
    end

    # These do nothing here. A handler, other than `IGNORE`, is not inherited by what the process
    # starts.
    def pass_over(names)
      names.each { |name| Signal.trap(name) { nil } }
    end

    # While the block makes this process another program. What is asked for from now on comes too
    # late for this one, and must not end the next one before it has handlers. A signal to stop has
    # its default action. If the block returns, all is as before.
    def between_programs
      before = IGNORED.to_h { |name| [name, Signal.trap(name, "IGNORE")] }
      STOPS.each { |name| before[name] = Signal.trap(name, "DEFAULT") }
      yield
    ensure
      before.each { |name, handler| Signal.trap(name, handler || "DEFAULT") }
    end

    # What every thread is in the middle of. Names and paths may have any bytes.
    def backtraces
      Thread.list.map do |thread|
        name = thread.name || thread.inspect
        lines = thread.backtrace || ["it has ended"]
        "thruway: thread ".b << name.b << "\n" << lines.map { |line| "  #{line}\n".b }.join
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

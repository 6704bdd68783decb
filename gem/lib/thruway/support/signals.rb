# frozen_string_literal: true

module Thruway
  # The handlers of signals. Only the signals that stop a server may end it.
  module Signals
    # The orders that operators give to a server, by signal.
    ORDERS = { "HUP" => :reload, "USR1" => :phased, "USR2" => :hot, "URG" => :refork,
               "TTIN" => :more, "TTOU" => :fewer }.freeze

    # The orders that the supervisor gives to a worker: hand the connections over to siblings and
    # end, or announce the server's end to balancers.
    WORKER_ORDERS = { "USR1" => :retire, "URG" => :announce_end }.freeze

    # Signals that are ignored during `exec`, so that none ends the next program before its handlers
    # are installed.
    IGNORED = [*ORDERS.keys, "PWR"].freeze

    STOPS = %w[TERM INT QUIT].freeze

    module_function

    # Traps TERM, INT and QUIT, which stop a server after its requests. A second INT ends the
    # process at once.
    def trap_stop(&stop)
      asked = false
      %w[TERM QUIT].each { |name| Signal.trap(name, &stop) }
      Signal.trap("INT") do
        exit!(130) if asked
        asked = true
        stop.call
      end
    end

    # Lets a write fail that exceeds the limit on the size of files, such as of a client's request
    # body. The signal would end the server. Programs that the server starts do not inherit the
    # handler.
    def survive_file_limit
      disregard(["XFSZ"])
    end

    # Traps the signals of operators, and yields the order of each. PWR logs the backtraces of all
    # threads.
    def trap_orders(orders = ORDERS)
      orders.each { |name, order| Signal.trap(name) { yield order } }
      Signal.trap("PWR") { write(backtraces) }
    end

    # Adds an order to the queue. A repeated order is merged unless each one counts.
    def queue(orders, order)
      orders << order if %i[more fewer].include?(order) || !orders.include?(order)
    end

    # Removes the supervisor's handlers in a forked process, which installs its own handlers later.
    # Until then, a stop ends the process at once. Ruby's own handlers would raise at any place:
    # within `require`, RubyGems turns their exception into an error.
    def restore
      STOPS.each { |name| Signal.trap(name, "SYSTEM_DEFAULT") }
      Signal.trap("CHLD", "DEFAULT")
      disregard(ORDERS.keys - ["HUP"])
    end

    # Makes signals do nothing in this process. Unlike `IGNORE`, an empty handler is not inherited
    # by programs that the process starts.
    def disregard(names)
      names.each { |name| Signal.trap(name) { nil } }
    end

    # Calls a block that replaces this process's program by `exec`. From then on, orders are lost,
    # and stop signals end the process. If the block returns, the old handlers are reinstalled.
    def between_programs
      handlers = IGNORED.to_h { |name| [name, Signal.trap(name, "IGNORE")] }
      STOPS.each { |name| handlers[name] = Signal.trap(name, "DEFAULT") }
      yield
    ensure
      handlers.each { |name, handler| Signal.trap(name, handler || "DEFAULT") }
    end

    # The backtraces of all threads. Names and paths may contain bytes in any encoding.
    def backtraces
      Thread.list.map do |thread|
        name = thread.name || thread.inspect
        lines = thread.backtrace || ["(ended)"]
        "thruway: thread ".b << name.b << "\n" << lines.map { |line| "  #{line}\n".b }.join
      end.join
    end

    # Logs a line of the server.
    def say(text) = write("thruway: #{text}\n")

    # Writes to stderr in one system call, without a lock, because a trap could not take one. Errors
    # are ignored: an unread log must not end the server.
    def write(text)
      STDERR.syswrite(text)
    rescue SystemCallError, IOError
      nil
    end
  end
end

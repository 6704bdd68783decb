# frozen_string_literal: true

require_relative "../application/runtime"
require_relative "../support/bare_socket"
require_relative "../support/signals"

module Thruway
  load("#{__dir__}/../support/fork_safety.rb", self)

  # A former worker that serves as the template for new workers. The new workers start with all code
  # that the template has loaded and compiled. See docs/explanation/design/refork.md.
  class ReforkWorker
    # Threads that concurrent-ruby restarts in a child. Preload templates do not end these.
    KNOWN_THREADS = %r{/concurrent/executor/(ruby_thread_pool_executor|timer_set)\.rb:\d+}

    # The size of the supervisor's longest message.
    MESSAGE_BYTES_MAX = 256

    # Whether the supervisor has ordered the worker to become the template. `wait_readable(0)` would
    # not do: it finds nothing while a signal is pending.
    def self.wanted?(orders)
      order = orders.recv_nonblock(MESSAGE_BYTES_MAX, exception: false)
      order.is_a?(String) && !order.empty?
    end

    # `orders` is the socket to the supervisor. `own` are the sockets of the server, as opposed to
    # the application's.
    def initialize(configuration, orders, own)
      @configuration = configuration
      @orders = orders
      @own = own
    end

    # Forks workers until the supervisor closes the socket. Each worker calls the block with the
    # words of the supervisor's message and the descriptors sent with it, and exits with the block's
    # result as its status.
    def run(&work)
      trap_signals
      if (objection = prepare)
        return tell("objection #{objection}")
      end

      tell("template")
      while (words, descriptors = next_order)
        fork_worker(words, descriptors, &work)
      end
    end

    private

    def trap_signals
      Signals.restore
      %w[TERM QUIT].each { |name| Signal.trap(name) { exit!(0) } }
      # Ctrl-C in a terminal reaches all processes. The supervisor decides when they end.
      Signals.disregard(["INT"])
    end

    # Prepares the process for forks: ends all threads but this one, and cuts all connections.
    # Returns the reason why the process cannot be forked, or nil.
    def prepare
      @configuration.run_hooks(:before_refork)
      ForkSafety.disconnect
      threads = Thread.list - [Thread.current]
      thread = ForkSafety.end_threads(threads) { |one| expendable?(one) }
      return "thread #{thread.inspect} does not survive a fork" if thread

      cut_connections
      Runtime.warm_up if @configuration.warm_up
      nil
    rescue SignalException
      raise
    rescue Exception => e # rubocop:disable Lint/RescueException
      "#{e.class}: #{e.message.lines.first&.chomp}"
    end

    # Puma uses the same variable, `fork_safe`, for threads that may be lost in a fork.
    def expendable?(thread)
      thread.is_a?(Process::Waiter) || thread.thread_variable_get(:fork_safe) ||
        KNOWN_THREADS.match?(thread.inspect)
    end

    # Replaces each connection with one whose peer has closed. Processes must not share a
    # connection, and clients reconnect when their peer seems to have gone.
    def cut_connections
      ended, peer = UNIXSocket.pair
      peer.close
      ForkSafety.sockets.each do |number, target|
        next if @own[number] == target || number == ended.fileno

        socket = Socket.for_fd(number)
        socket.autoclose = false
        socket.reopen(ended) if connection?(socket)
      end
    ensure
      ended&.close
    end

    # Whether a socket is a connection. Processes can share datagram sockets and listeners.
    def connection?(socket)
      type = socket.getsockopt(:SOCKET, :TYPE).int
      type == Socket::SOCK_STREAM && socket.getsockopt(:SOCKET, :ACCEPTCONN).int.zero?
    end

    # Returns the words and the descriptors of the next message; nil at the end.
    def next_order
      text, _, _, *data = @orders.recvmsg(MESSAGE_BYTES_MAX, scm_rights: true)
      return if text.nil? || text.empty?

      [text.split, data.flat_map { |one| one.unix_rights || [] }]
    rescue Errno::ECONNRESET
      nil
    end

    # Forks a worker by two forks: when the process in between ends, the kernel makes the worker a
    # child of the supervisor.
    def fork_worker(words, descriptors, &work)
      reads, writes = IO.pipe
      between = fork do
        pid = fork { begin_work(words, descriptors, [reads, writes], &work) }
        writes.syswrite(pid.to_s)
        exit!(0)
      rescue SystemCallError
        exit!(1)
      end
      [*descriptors, writes].each(&:close)
      Process.wait(between)
      tell("pid #{reads.read}")
    rescue SystemCallError => e
      tell("error #{e.message}")
    ensure
      reads&.close
    end

    def begin_work(words, descriptors, others)
      [@orders, *others].each(&:close)
      exit!(yield(words, descriptors))
    end

    # Errors are ignored: if the supervisor has gone, the next read meets the end of the socket.
    def tell(text)
      @orders.sendmsg(text)
    rescue SystemCallError
      nil
    end
  end
end

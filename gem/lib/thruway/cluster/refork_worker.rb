# frozen_string_literal: true

require_relative "../application/runtime"
require_relative "../support/bare_socket"
require_relative "../support/signals"

module Thruway
  load("#{__dir__}/../support/fork_safety.rb", self)

  # What a worker becomes that serves no more: the process that the next workers are forked from.
  # They begin with what it has loaded and compiled. See docs/explanation/design/refork.md.
  class WorkerTemplate
    # Beyond those that both kinds of templates know: concurrent-ruby's pools begin anew in a child.
    KNOWN_THREADS = %r{/concurrent/executor/(ruby_thread_pool_executor|timer_set)\.rb:\d+}

    # The longest message of the supervisor.
    MESSAGE_BYTES_MAX = 256

    # `orders` leads to the supervisor; `own` are the sockets that the server itself has.
    def initialize(configuration, orders, own)
      @configuration = configuration
      @orders = orders
      @own = own
    end

    # Forks workers as long as the supervisor is there. The block is called in each: with what the
    # supervisor said, and its descriptors. It answers with the exit status.
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
      # From a terminal it comes to all: the supervisor decides.
      Signals.pass_over(["INT"])
    end

    # Prepares the process for forks: it keeps one thread, and no connections. Answers
    # with what is in the way.
    def prepare
      @configuration.run_hooks(:before_refork)
      ForkSafety.disconnect
      threads = Thread.list - [Thread.current]
      thread = ForkSafety.end_threads(threads) { |one| expendable?(one) }
      return "it has a thread that workers would miss: #{thread.inspect}" if thread

      cut_connections
      Runtime.warm_up if @configuration.warm_up
      nil
    rescue SignalException
      raise
    rescue Exception => e # rubocop:disable Lint/RescueException
      "#{e.class}: #{e.message.lines.first&.chomp}"
    end

    # Puma has the same word for threads that a fork may end.
    def expendable?(thread)
      thread.is_a?(Process::Waiter) || thread.thread_variable_get(:fork_safe) ||
        KNOWN_THREADS.match?(thread.inspect)
    end

    # Several processes would talk on one connection. So it looks as if its peer had ended it, and
    # whatever uses it connects anew.
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

    # Datagrams do not mix, and a listener has no peer.
    def connection?(socket)
      type = socket.getsockopt(:SOCKET, :TYPE).int
      type == Socket::SOCK_STREAM && socket.getsockopt(:SOCKET, :ACCEPTCONN).int.zero?
    end

    # The words and the descriptors of a message; nil at the end.
    def next_order
      text, _, _, *data = @orders.recvmsg(MESSAGE_BYTES_MAX, scm_rights: true)
      return if text.nil? || text.empty?

      [text.split, data.flat_map { |one| one.unix_rights || [] }]
    rescue Errno::ECONNRESET
      nil
    end

    # The worker becomes the supervisor's own child, as the process in between ends.
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

    # A supervisor that is gone is found out later.
    def tell(text)
      @orders.sendmsg(text)
    rescue SystemCallError
      nil
    end
  end
end

# frozen_string_literal: true

require_relative "../engine"

module Thruway
  # The `Fiber::Scheduler` of a thread that runs requests in fibers. Ruby calls these methods where
  # a fiber would block the thread. The extension defines the methods that wait, and this file those
  # that need blocks and threads of Ruby.
  class FiberScheduler
    # Makes a forked process an ordinary one, because the child has no server's loop to wait in.
    module Forks
      def _fork
        pid = super
        Fiber.scheduler.leave if pid == 0 && Fiber.scheduler.is_a?(FiberScheduler)
        pid
      end
    end

    # Refuses a new scheduler for a serving thread. Without the server's scheduler, each wait of a
    # request would delay all other requests of the thread.
    module Replacements
      def set_scheduler(scheduler)
        own = Fiber.scheduler
        own.refuse if own.is_a?(FiberScheduler) && !own.left? && !own.equal?(scheduler)
        super
      end
    end

    # Writes at a position of a file without the scheduler: from Ruby 3.3 on, IO#pwrite calls the
    # hook `io_pwrite` without the interpreter lock, which damages Ruby's own data.
    module PositionedWrites
      def pwrite(object, offset)
        return super unless !Fiber.current.blocking? && Fiber.scheduler.is_a?(FiberScheduler)

        FiberScheduler.blocking { super }
      end
    end

    REFUSAL = "a request that runs in a fiber cannot bring a scheduler or a reactor of its own; " \
              "run it in a thread, such as `Thread.new { Async { ... }.wait }.value`, or serve " \
              "without `fibers`"

    @lock = Mutex.new

    class << self
      # Returns a new scheduler, which belongs to the calling thread.
      def create
        @lock.synchronize { @is_prepared ||= prepare }
        install
      end

      # Runs the block outside of any scheduler: calls in the block block the thread.
      def blocking
        Fiber.new(blocking: true) { yield }.resume
      end

      private

      def prepare
        Process.singleton_class.prepend(Forks)
        Fiber.singleton_class.prepend(Replacements)
        IO.prepend(PositionedWrites) if RUBY_VERSION >= "3.3"
        true
      end
    end

    # Gives up the thread of a forked process.
    def leave
      abandon
      @is_left = true
      Fiber.set_scheduler(nil)
    end

    def left? = @is_left

    def refuse(*) = raise(REFUSAL)

    # The async gem calls this method to make the scheduler the parent of a task. Tasks need async's
    # own scheduler.
    alias add_child refuse

    # Starts the block of `Fiber.schedule` in a new fiber.
    def fiber(**options, &block)
      start(Fiber.new(**options, blocking: false) { run_scheduled(block) })
    end

    # Raises `error` in the block once the block has taken `seconds`, whether it waits or computes.
    # A block that computes is interrupted only at its next wait.
    def timeout_after(seconds, *error)
      return yield(seconds) unless seconds&.positive?

      begin
        deadline = set_deadline(seconds, error)
        yield(seconds)
      ensure
        cancel_deadline(deadline) if deadline
      end
    end

    # Waits for a child process, and returns its Process::Status.
    def process_wait(pid, flags)
      descriptor = open_process(pid) if (flags & Process::WNOHANG).zero?
      unless descriptor
        return FiberScheduler.blocking { Process::Status.wait(pid, flags) } if flags.anybits?(
          Process::WNOHANG
        )

        return elsewhere { Process::Status.wait(pid, flags) }
      end

      process = IO.for_fd(descriptor)
      begin
        process.wait_readable
        FiberScheduler.blocking { Process::Status.wait(pid, flags | Process::WNOHANG) }
      ensure
        process.close
      end
    end

    # Resolves a name by the system's resolver, which does not know fibers.
    def address_resolve(name)
      name = name.split("%", 2).first
      elsewhere { Addrinfo.getaddrinfo(name, nil, nil, :STREAM).map(&:ip_address).uniq }
    end

    # Runs an operation that computes without the interpreter lock (Ruby 3.4). The operation works
    # on memory of the fiber's stack. So an interrupted fiber goes on once the operation has ended.
    def blocking_operation_wait(operation)
      thread = start_thread { operation.call }
      thread.value
    ensure
      end_at_once(thread) if thread
    end

    # Waits until one of the IOs is ready. Returns the ready IOs, or nil after the timeout.
    def io_select(readable, writable = nil, exceptional = nil, timeout = nil)
      lists = [readable, writable, exceptional]
      now = FiberScheduler.blocking { IO.select(*lists, 0) }
      return now if now || timeout&.zero?

      elsewhere { IO.select(*lists, timeout) }
    end

    def close = scheduler_close

    def run = scheduler_close

    private

    # Returns the value of a block that another thread runs while this fiber waits.
    def elsewhere(&block)
      thread = start_thread(&block)
      thread.value
    ensure
      thread&.kill
    end

    def start_thread
      Thread.new do
        Thread.current.report_on_exception = false
        yield
      end
    end

    # Kills a thread and waits until it has ended. Nothing interrupts the wait.
    def end_at_once(thread)
      return unless thread.alive?

      Thread.handle_interrupt(Object => :never) do
        FiberScheduler.blocking do
          thread.kill
          thread.join
        end
      end
    end

    # An exception of the block ends only the block's fiber, as in a thread.
    def run_scheduled(block)
      block.call
    rescue Exception => e # rubocop:disable Lint/RescueException
      warn("thruway: a fiber of Fiber.schedule ended: #{e.full_message(highlight: false)}")
    ensure
      finish
    end
  end
end

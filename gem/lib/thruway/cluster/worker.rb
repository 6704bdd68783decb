# frozen_string_literal: true

require_relative "../application/database_pools"
require_relative "../server/server"
require_relative "../support/failure"
require_relative "../support/hooks"
require_relative "../support/signals"
require_relative "refork_worker"

module Thruway
  # A worker of a cluster, in the worker's own process.
  class Worker
    # The size of a page, the unit of `/proc/self/statm`.
    PAGE_KILOBYTES = 4

    # `table_index` is the index of this worker's entry in the worker `table`, and `supervisor` the
    # process number of the supervisor.
    def initialize(index, configuration, application, listeners, table:, table_index:,
                   supervisor: nil)
      @supervisor = supervisor || Process.ppid
      @index = index
      @table = table
      @table_index = table_index
      @configuration = configuration
      @application = application
      @listeners = listeners
    end

    # Serves until the worker is stopped, or until the supervisor has gone and the pipe `alive`
    # ends. The worker reports its readiness and its heartbeats on the pipe `reports`. A message on
    # the socket `orders` makes the worker the template for new workers. Returns the exit status.
    def run(alive:, reports:, orders:)
      name_process("worker #{@index}")
      trap_signals_of_boot
      own = ForkSafety.sockets
      # The hooks run before the application boots, unless it was preloaded.
      Hooks.run(@configuration, :before_worker_boot, @index, may_exit: true)
      application = @application.load
      # Only the first worker checks, so that a warning appears once.
      DatabasePools.check(@configuration) if @index.zero?
      @server = Server.new(application, @configuration, @listeners.descriptors,
                           table: @table, worker: @table_index)
      trap_signals
      @server.announce_end if @is_ending
      @helpers = [end_with(alive)]
      return 1 unless report_ready(reports)

      send_heartbeats(reports)
      @server.run
      Hooks.run(@configuration, :before_worker_shutdown, @index)
      become_template(orders, own, alive, reports) if ReforkWorker.wanted?(orders)
      0
    rescue Failure => e
      e.report
    end

    private

    # Reports readiness, and returns whether the supervisor knows this worker. If the template was
    # killed before it could report the new process, no process reads the pipe.
    def report_ready(reports)
      reports.write("ready\n")
    rescue Errno::EPIPE
      false
    end

    # Serves as the template for workers. Returns when the supervisor has gone or has dropped this
    # template.
    def become_template(orders, own, alive, reports)
      name_process("template")
      @helpers.each(&:kill).each(&:join)
      reports.close unless reports.closed?
      @server.close
      @server = nil
      template = ReforkWorker.new(@configuration, orders, own)
      template.run { |words, descriptors| serve_as_child(words.map(&:to_i), descriptors, alive) }
    end

    # Serves in a process that was forked from this template.
    def serve_as_child((index, table_index), (reports, orders), alive)
      reports.sync = true
      # An exception here ends the process, which stops the refork. Other workers are unaffected.
      @configuration.run_hooks(:after_refork)
      worker = Worker.new(index, @configuration, @application, @listeners,
                          table: @table, table_index: table_index, supervisor: @supervisor)
      worker.run(alive: alive, reports: reports, orders: orders)
    end

    def name_process(role)
      tag = @configuration.tag
      title = "thruway: #{role}: #{@supervisor}"
      Process.setproctitle(tag.to_s.empty? ? title : "#{title} [#{tag}]")
    end

    # Traps signals until the worker serves. Other workers serve meanwhile, so a worker that is to
    # be replaced exits at once.
    def trap_signals_of_boot
      Signal.trap("USR1") { exit!(0) }
      Signal.trap("URG") { @is_ending = true }
    end

    # A signal stops this worker alone. The others continue, and the supervisor starts a
    # replacement.
    def trap_signals
      Signals.trap_stop { stop(closes_for_all: false) }
      Signals::WORKER_ORDERS.each do |name, order|
        Signal.trap(name) { order == :retire ? @server.retire(seconds) : @server.announce_end }
      end
    end

    # Stops the worker when the pipe ends: either the whole server stops, or the supervisor has died
    # and no process would replace or stop this worker.
    def end_with(alive)
      Thread.new do
        alive.read
        stop(closes_for_all: !@listeners.shared?)
      end
    end

    # Reports at intervals that Ruby runs, the number of served requests, and the memory in use.
    def send_heartbeats(reports)
      return reports.close unless @configuration.watches_workers?

      @helpers << Thread.new do
        loop do
          sleep @configuration.worker_check_seconds
          reports.write("beat #{@server.engine.requests} #{kilobytes}\n")
        end
      rescue SystemCallError, IOError
        # After a hot restart, the new supervisor does not read the pipes of old workers.
        reports.close
      end
    end

    def kilobytes = File.read("/proc/self/statm").split[1].to_i * PAGE_KILOBYTES

    def stop(closes_for_all:)
      @server.stop(seconds, closes_for_all: closes_for_all)
    end

    # The time to drain. Late requests get a response before the supervisor kills the worker.
    def seconds
      [@configuration.drain_seconds, @configuration.worker_shutdown_seconds].compact.min
    end
  end
end

# frozen_string_literal: true

require_relative "../server/server"
require_relative "../support/failure"
require_relative "../support/hooks"
require_relative "../support/signals"
require_relative "refork_worker"

module Thruway
  # One process of a cluster.
  class Worker
    # Of `/proc/self/statm`, in pages.
    PAGE_KILOBYTES = 4

    # `slot` is its row in the fleet, and `master` the supervisor's process number.
    def initialize(index, configuration, application, listeners, fleet:, slot:, master: nil)
      @master = master || Process.ppid
      @index = index
      @fleet = fleet
      @slot = slot
      @configuration = configuration
      @application = application
      @listeners = listeners
    end

    # Serves until it is told to stop, or the master is gone. `alive` ends with the master; on
    # `says` it tells that it serves, and that it lives. `orders` may tell it to be the template
    # then. Answers with the exit status.
    def run(alive:, says:, orders:)
      name_process("worker #{@index}")
      trap_signals_of_boot
      own = ForkSafety.sockets
      # Before the application boots, if it has not.
      Hooks.run(@configuration, :before_worker_boot, @index, may_exit: true)
      @server = Server.new(@application.load, @configuration, @listeners.descriptors,
                           fleet: @fleet, worker: @slot)
      trap_signals
      @server.announce_end if @is_ending
      @helpers = [end_with(alive)]
      return 1 unless is_heard(says)

      beat(says)
      @server.run
      Hooks.run(@configuration, :before_worker_shutdown, @index)
      become_template(orders, own, alive, says) if orders.wait_readable(0)
      0
    rescue Failure => e
      e.report
    end

    private

    # Whether the supervisor takes this worker. Of one whose template had no time to tell of it, it
    # has never heard.
    def is_heard(says)
      says.write("ready\n")
    rescue Errno::EPIPE
      false
    end

    # It comes back when the supervisor is gone, or needs another one.
    def become_template(orders, own, alive, says)
      return if orders.recv(WorkerTemplate::MESSAGE_BYTES_MAX).to_s.empty?

      name_process("template")
      @helpers.each(&:kill).each(&:join)
      says.close unless says.closed?
      @server.close
      @server = nil
      template = WorkerTemplate.new(@configuration, orders, own)
      template.run { |words, descriptors| follow(words.map(&:to_i), descriptors, alive) }
    end

    # In a new process.
    def follow((index, slot), (says, orders), alive)
      says.sync = true
      # One that raises stops the refork; the workers that serve stay.
      @configuration.run_hooks(:after_refork)
      worker = Worker.new(index, @configuration, @application, @listeners,
                          fleet: @fleet, slot: slot, master: @master)
      worker.run(alive: alive, says: says, orders: orders)
    end

    def name_process(role)
      tag = @configuration.tag
      title = "thruway: #{role}: #{@master}"
      Process.setproctitle(tag.to_s.empty? ? title : "#{title} [#{tag}]")
    end

    # Before it serves: others do, so it ends at once if another is to take its place.
    def trap_signals_of_boot
      Signal.trap("USR1") { exit!(0) }
      Signal.trap("URG") { @is_ending = true }
    end

    # On its own account: the others go on, and another takes its place.
    def trap_signals
      Signals.trap_stop { stop(closes_for_all: false) }
      Signals::WORKER_ORDERS.each do |name, order|
        Signal.trap(name) { order == :retire ? @server.retire(seconds) : @server.announce_end }
      end
    end

    # The whole server ends, or its master is gone: a worker without one would serve on, unseen.
    def end_with(alive)
      Thread.new do
        alive.read
        stop(closes_for_all: !@listeners.shared?)
      end
    end

    # Tells that Ruby runs, how many requests there were, and how much memory is in use.
    def beat(says)
      return says.close unless @configuration.watches_workers?

      @helpers << Thread.new do
        loop do
          sleep @configuration.worker_check_seconds
          says.write("beat #{@server.engine.requests} #{kilobytes}\n")
        end
      rescue SystemCallError, IOError
        # The supervisor is another program now.
        says.close
      end
    end

    def kilobytes = File.read("/proc/self/statm").split[1].to_i * PAGE_KILOBYTES

    def stop(closes_for_all:)
      @server.stop(seconds, closes_for_all: closes_for_all)
    end

    # In time for what is late to be answered before the master insists.
    def seconds
      [@configuration.drain_seconds, @configuration.worker_shutdown_seconds].compact.min
    end
  end
end

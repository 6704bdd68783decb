# frozen_string_literal: true

require_relative "failure"
require_relative "server"
require_relative "signals"

module Thruway
  # One process of a cluster.
  class Worker
    # Of `/proc/self/statm`, in pages.
    PAGE_KILOBYTES = 4

    # `slot` is its row in the fleet.
    def initialize(index, configuration, application, listeners, fleet:, slot:)
      @master = Process.ppid
      @index = index
      @fleet = fleet
      @slot = slot
      @configuration = configuration
      @application = application
      @listeners = listeners
    end

    # Serves until it is told to stop, or the master is gone. `alive` ends with the master; on
    # `says` it tells that it serves, and that it lives. Answers with the exit status.
    def run(alive:, says:)
      name_process
      @server = Server.new(@application.load, @configuration, @listeners.descriptors,
                           fleet: @fleet, worker: @slot)
      @configuration.run_hooks(:before_worker_boot, @index)
      trap_signals
      end_with(alive)
      says.write("ready\n")
      beat(says)
      @server.run
      @configuration.run_hooks(:before_worker_shutdown, @index)
      0
    rescue Failure => e
      e.report
    end

    private

    def name_process
      tag = @configuration.tag
      title = "thruway: worker #{@index}: #{@master}"
      Process.setproctitle(tag.to_s.empty? ? title : "#{title} [#{tag}]")
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

      Thread.new do
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

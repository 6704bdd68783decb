# frozen_string_literal: true

require_relative "failure"
require_relative "server"
require_relative "signals"

module Thruway
  # One process of a cluster.
  class Worker
    def initialize(index, configuration, application, descriptors, fleet)
      @master = Process.ppid
      @index = index
      @fleet = fleet
      @configuration = configuration
      @application = application
      @descriptors = descriptors
    end

    # Serves until it is told to stop, or the master is gone. `alive` ends with the master; on
    # `says` it tells that it serves. Answers with the exit status.
    def run(alive:, says:)
      name_process
      @server = Server.new(@application.load, @configuration, @descriptors,
                           fleet: @fleet, worker: @index)
      # On its own account: the others go on, and another takes its place.
      Signals.trap_stop { stop(closes_for_all: false) }
      @configuration.run_hooks(:before_worker_boot, @index)
      end_with(alive)
      says.write("r")
      says.close
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

    # The whole server ends, or its master is gone: a worker without one would serve on, unseen.
    def end_with(alive)
      Thread.new do
        alive.read
        stop(closes_for_all: true)
      end
    end

    # In time for what is late to be answered before the master insists.
    def stop(closes_for_all:)
      seconds = [@configuration.drain_seconds, @configuration.worker_shutdown_seconds].compact.min
      @server.stop(seconds, closes_for_all: closes_for_all)
    end
  end
end

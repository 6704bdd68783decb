# frozen_string_literal: true

require_relative "failure"
require_relative "server"
require_relative "signals"

module Thruway
  # One process of a cluster.
  class Worker
    def initialize(index, configuration, application, descriptors, fleet)
      @index = index
      @fleet = fleet
      @configuration = configuration
      @application = application
      @descriptors = descriptors
    end

    # Serves until it is told to stop, or the master is gone. `alive` ends with the master; on
    # `says` it tells that it serves. Answers with the exit status.
    def run(alive:, says:)
      @server = Server.new(@application.load, @configuration, @descriptors,
                           fleet: @fleet, worker: @index)
      Signals.trap_stop { @server.stop(@configuration.worker_shutdown_seconds) }
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

    # A worker without a master would serve on, unseen.
    def end_with(alive)
      Thread.new do
        alive.read
        @server.stop(@configuration.worker_shutdown_seconds)
      end
    end
  end
end

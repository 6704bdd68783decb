# frozen_string_literal: true

require_relative "../support/failure"
require_relative "../support/signals"
require_relative "puma_cluster"
require_relative "puma_launcher"
require_relative "puma_library"

module Thruway
  # The plugins of a server, which are written for Puma. Each starts once, even if the configuration
  # is read again.
  class PumaPlugins
    # The prefix of the names of plugins' threads.
    BACKGROUND = "puma plgn bg"

    # The time for the `ensure` clauses of a plugin's thread.
    END_SECONDS = 5

    # Creates the plugin of that name from a gem of the application's bundle.
    def self.create(name)
      PumaLibrary.load
      ::Puma::Plugins.find(name).new
    end

    # `server` is the `Launcher`.
    def initialize(server)
      @server = server
      @launcher = PumaLauncher.new(server)
      PumaLibrary.serve_with(@launcher)
      configuration = server.configuration
      @cluster = PumaCluster.create(@launcher) { handles } if configuration.workers.positive?
      attach(configuration)
      configuration.plugins.each { |name, plugin| start(name, plugin) }
    end

    # Passes the server's events on to the plugins. Must be called for each new configuration.
    def attach(configuration)
      hooks = configuration.hooks
      hooks[:after_booted] << ->(*) { @launcher.events.fire(:after_booted) }
      %i[after_stopped before_restart].each do |name|
        hooks[name] << lambda do |*|
          end_background
          @launcher.events.fire(name)
        end
      end
      configuration.workers.positive? ? attach_to_workers(hooks) : attach_to_process(hooks)
    end

    # Starts the threads of plugins. The application must be loaded, because the threads may use it.
    def fire_background
      ::Puma::Plugins.fire_background
    end

    private

    # Ends the threads of plugins before the plugins end the processes that the threads watch. A
    # thread that misses its process stops the server, which may be about to restart.
    def end_background
      threads = Thread.list.select { |thread| thread.name&.start_with?(BACKGROUND) }
      threads.each(&:kill).each { |thread| thread.join(END_SECONDS) }
    end

    # Fires the events of Puma's server, which reports its state in the process that serves.
    def attach_to_workers(hooks)
      hooks[:before_worker_boot] << ->(*) { fire_states(:booting, :running) }
      hooks[:before_worker_shutdown] << ->(*) { fire_states(:stop, :done) }
    end

    def attach_to_process(hooks)
      hooks[:after_booted].unshift(->(*) { fire_states(:booting, :running) })
      hooks[:after_stopped].unshift(->(*) { fire_states(:stop, :done) })
      hooks[:before_restart].unshift(->(*) { fire_states(:restart, :done) })
    end

    def fire_states(*states)
      states.each { |state| @launcher.events.fire(:state, state) }
    end

    def handles
      @server.workers.map do |process|
        age = Process.clock_gettime(Process::CLOCK_MONOTONIC) - process.started_at
        PumaCluster::WorkerHandle.new(process.index, process.pid, Time.now - age, process.ready)
      end
    end

    def start(name, plugin)
      plugin.start(@launcher) if plugin.respond_to?(:start)
    rescue Failure
      raise
    rescue ScriptError, StandardError => e
      raise Failure, "plugin #{name.to_sym.inspect} cannot start: #{e.message.lines.first&.chomp}"
    end
  end
end

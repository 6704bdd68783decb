# frozen_string_literal: true

require_relative "../application/application"
require_relative "../cluster/supervisor"
require_relative "../control/agent_check"
require_relative "../control/control"
require_relative "../server/listeners"
require_relative "../support/hooks"
require_relative "../support/redirection"
require_relative "early_signals"
require_relative "hot_restart"
require_relative "inheritance"
require_relative "single"
require_relative "socket_activation"
require_relative "systemd_notifier"

module Thruway
  # Starts a server as it was configured, and says where it is.
  class Launcher
    # Between two looks at the file that asks for restarts.
    RESTART_FILE_SECONDS = 2

    attr_reader :configuration, :application, :listeners, :notify, :restart

    # What was asked for before there was a server that can follow it.
    attr_reader :orders

    # `started` is the time of the monotonic clock at which the user asked for it; `name` is what is
    # served, as the user calls it. `restart` starts it again; `reread` gives its configuration as
    # it would be now.
    def initialize(configuration, name:, started: Process.clock_gettime(Process::CLOCK_MONOTONIC),
                   restart: HotRestart.of_this_process, reread: nil)
      @configuration = configuration
      @name = name
      @started = started
      @reread = reread
      @restart = restart
    end

    # Serves until a signal ends it.
    def run
      @before = Inheritance.take
      @notify = Notify.take
      @activation = Activation.take
      @redirection = Redirection.new(@configuration)
      take_early_signals
      prepare
      trial = ENV.delete(HotRestart::TRIAL)
      return try(trial) if trial

      listen
      @configuration.offer(:metrics_listener, @listeners.metrics_from)
      @control = Control.open(@configuration)
      @agent = AgentCheck.open(@configuration)
      write_pidfile
      write_state
      name_process
      serve
      Hooks.run(@configuration, :after_stopped)
    ensure
      @listeners&.close
      @control&.close
      @agent&.close
      remove_pidfile
    end

    # Stops the server, from another thread or a trap.
    def stop
      @runner&.stop
    end

    # Tells balancers that the server is about to stop. It may be called from a trap.
    def announce_end = @agent&.announce_end

    # The same application, from where it is now.
    def renew_application
      @application = Application.new(@configuration).tap(&:check)
    end

    # Reads the configuration again. Whether it has changed; then it holds, unless it is to be kept.
    def reload(keep: false)
      read = @reread&.call or return false
      read.check
      return false if read.source == @configuration.source

      take(read) unless keep
      true
    rescue SystemCallError, SystemExit => e
      raise Failure, "cannot read the configuration again: #{e.message}"
    end

    # Another configuration, for workers that start from now on.
    def take(configuration)
      configuration.offer(:metrics_listener, @listeners.metrics_from)
      @control&.spare(configuration)
      @agent&.spare(configuration)
      @plugins&.attach(configuration)
      @configuration = configuration
    end

    # Whether the server is to stop before it serves.
    def stopped? = @is_stopped

    # This process becomes the next server, unless the block says that it is to stop.
    def become_next(**data, &is_stopping)
      Hooks.run(@configuration, :before_restart)
      @restart.words = @configuration.restart_words if @configuration.restart_words
      own, foreign = @listeners.inheritance
      @restart.become_next(listeners: own, kept: foreign, **data, &is_stopping)
    end

    private

    # Until there is a server that can follow them. The next server of a restart does so when it
    # serves; its workers serve meanwhile.
    def take_early_signals
      @orders = [*@before&.orders]
      Signals.trap_orders { |order| @before ? keep(order) : decline(order) }
      Signals.trap_stop { @is_stopped = true } if @before
      EarlySignals.replay
    end

    def keep(order)
      @redirection.renew if order == :reload && !@redirection.idle?
      Signals.queue(@orders, order)
    end

    def decline(order)
      order == :reload ? @redirection.renew : Signals.say("it has not started yet")
    end

    def prepare
      configuration = @configuration
      configuration.check
      ENV["RACK_ENV"] = configuration.environment
      directory = configuration.options[:directory]
      Dir.chdir(directory) if directory
      @redirection.begin(continues: !@before.nil? || ENV.key?(HotRestart::TRIAL))
      @application = Application.new(configuration)
      @application.check
    end

    # The check before a hot restart: this server is of the same kind as its predecessor, and the
    # application boots.
    def try(kind)
      if kind != kind_of_server.name
        raise Failure, "a restart cannot change between workers and one process: stop the server " \
                       "and start it"
      end
      @application.load
    end

    def kind_of_server = @configuration.workers.zero? ? Single : Cluster

    def listen
      uris = @configuration.addresses(@activation)
      @listeners = Listeners.new(uris, metrics: @configuration.metrics,
                                       inherited: @before&.listeners || {}, activated: @activation)
    end

    def serve
      look_for_restarts if @configuration.restart_file
      start_plugins if @configuration.plugins.any?
      @runner = kind_of_server.new(self, @before)
      @runner.run do
        @control&.start { @runner.stats }
        @agent&.start { @runner.stats }
        announce
      end
    end

    def start_plugins
      @plugins = PumaPlugins.new(@configuration) { @runner.stats }
    end

    # A file that is touched asks for a restart, as Puma's plugin has it.
    def look_for_restarts
      path = File.expand_path(@configuration.restart_file)
      before = touched_at(path)
      Thread.new do
        loop do
          sleep RESTART_FILE_SECONDS
          now = touched_at(path)
          Process.kill("USR2", Process.pid) if now && now != before
          before = now
        end
      end
    end

    def touched_at(path)
      File.mtime(path) if File.file?(path)
    rescue SystemCallError
      # It has gone meanwhile.
      nil
    end

    def announce
      milliseconds = (Process.clock_gettime(Process::CLOCK_MONOTONIC) - @started) * 1000
      addresses = @listeners.addresses.join(", ")
      text = Failure.text("serving ", @name, " on ", addresses,
                          " (ready in #{milliseconds.round} ms)\n")
      metrics = @listeners.metrics_addresses
      text += "metrics on #{metrics.join(", ")}\n" unless metrics.empty?
      # At once: its reader may close after the first line.
      tell(text)
      @plugins&.fire_background
      Hooks.run(@configuration, :after_booted)
    end

    # After a restart, what has read the first line may be gone; a disk may be full.
    def tell(line)
      $stdout.write(line)
      $stdout.flush
    rescue SystemCallError
      nil
    end

    # As Puma's, by which operators find it: `ps` shows addresses and the application's tag.
    def name_process
      addresses = @listeners.addresses.map { |address| address.sub(/\Ahttp:/, "tcp:") }
      title = Failure.text("thruway #{VERSION} (", addresses.join(","), ")")
      tag = @configuration.tag.to_s
      title << Failure.text(" [", tag, "]") unless tag.empty?
      Process.setproctitle(title)
    end

    def write_pidfile
      path = @configuration.pidfile or return
      File.write(path, "#{Process.pid}\n")
      @pidfile = File.expand_path(path)
    rescue SystemCallError => e
      raise Failure, "cannot write the pidfile: #{e.message}"
    end

    # By which `thruway ctl -S` and pumactl find the control application.
    def write_state
      path = @configuration.state_path or return
      state = @control&.state || { "pid" => Process.pid, "running_from" => Dir.pwd }
      text = state.map { |name, value| "#{name}: #{value.is_a?(String) ? value.dump : value}\n" }
      # The token is in it.
      File.write(path, "---\n#{text.join}", perm: @configuration.state_permission || 0o600)
      @state = File.expand_path(path)
    rescue SystemCallError => e
      raise Failure, "cannot write the state: #{e.message}"
    end

    def remove_pidfile
      [@pidfile, @state].each { |path| File.delete(path) if path && File.exist?(path) }
    end
  end
end

# frozen_string_literal: true

require_relative "../application/application"
require_relative "../cluster/supervisor"
require_relative "../control/agent_check"
require_relative "../control/control"
require_relative "../server/listeners"
require_relative "../support/hooks"
require_relative "../support/redirection"
require_relative "certificate_agent"
require_relative "early_signals"
require_relative "hot_restart"
require_relative "inheritance"
require_relative "single"
require_relative "socket_activation"
require_relative "systemd_notifier"

module Thruway
  # Starts a server as configured, and announces its addresses. `Single` or `Supervisor` then run
  # the server.
  class Launcher
    # The interval between two checks of the file that requests restarts.
    RESTART_FILE_SECONDS = 2

    attr_reader :configuration, :application, :listeners, :notifier, :restart

    # The orders that arrived before a server could follow them.
    attr_reader :orders

    # `started_at` is the time of the monotonic clock at which the user ran the command. `name` is
    # the user's name for the application. `restart` runs the command again in a hot restart.
    # `reread` returns the current configuration.
    def initialize(configuration, name:, restart: HotRestart.of_this_process, reread: nil,
                   started_at: Process.clock_gettime(Process::CLOCK_MONOTONIC))
      @configuration = configuration
      @name = name
      @started_at = started_at
      @reread = reread
      @restart = restart
    end

    # Serves until a signal ends it.
    def run
      Signals.survive_file_limit
      @previous = Inheritance.take
      @notifier = SystemdNotifier.take
      @activation = SocketActivation.take
      @redirection = Redirection.new(@configuration)
      take_early_signals
      prepare
      trial = ENV.delete(HotRestart::TRIAL)
      return run_trial(trial) if trial

      listen
      @configuration.offer(:metrics_listener, @listeners.metrics_from)
      @control = Control.open(@configuration)
      @agent_check = AgentCheck.open(@configuration)
      write_pidfile
      write_state
      name_process
      serve
      Hooks.run(@configuration, :after_stopped)
    ensure
      @listeners&.close
      @control&.close
      @agent_check&.close
      @agent&.stop
      remove_files
    end

    # The counters of the server, as JSON.
    def counters = @runner.stats

    # The processes of the workers; none in a server without workers.
    def workers = @runner ? @runner.workers : []

    # Stops the server, from another thread or a trap.
    def stop
      @runner&.stop
    end

    # Tells load balancers, by the agent check, that the server is about to stop. May be called from
    # a trap.
    def announce_end = @agent_check&.announce_end

    # Returns the application anew, to be loaded from the current release.
    def renew_application
      @application = Application.new(@configuration).tap(&:check)
    end

    # Reads the configuration again, and returns whether it has changed. The new configuration
    # replaces the old one unless `keep` is set.
    def reload(keep: false)
      current = @reread&.call or return false
      current.check
      return false if current.source == @configuration.source

      take(current) unless keep
      true
    rescue SystemCallError, SystemExit => e
      raise Failure, "cannot read the configuration again: #{e.message}"
    end

    # Replaces the configuration for workers that start later.
    def take(configuration)
      configuration.offer(:metrics_listener, @listeners.metrics_from)
      @control&.close_in_workers(configuration)
      @agent_check&.close_in_workers(configuration)
      @plugins&.attach(configuration)
      @configuration = configuration
    end

    # Whether a signal has stopped the server before it served.
    def stopped? = @is_stopped

    # Becomes the next server in this process. If the block returns true, the server is stopping,
    # and the process continues with the current program.
    def become_next(**data, &is_stopping)
      Hooks.run(@configuration, :before_restart)
      @restart.words = @configuration.restart_words if @configuration.restart_words
      @agent&.stop
      own, foreign = @listeners.inheritance
      @restart.become_next(listeners: own, kept: foreign, **data, &is_stopping)
    end

    private

    # Handles signals until a server can. In a hot restart, orders wait until the next server
    # serves. Without a previous server, orders are declined.
    def take_early_signals
      @orders = [*@previous&.orders]
      Signals.trap_orders { |order| @previous ? keep(order) : decline(order) }
      Signals.trap_stop { @is_stopped = true } if @previous
      EarlySignals.replay
    end

    def keep(order)
      @redirection.renew if order == :reload && !@redirection.idle?
      Signals.queue(@orders, order)
    end

    def decline(order)
      return @redirection.renew if order == :reload

      Signals.say("the signal is ignored: the server has not started yet")
    end

    def prepare
      configuration = @configuration
      configuration.check
      configuration.enter
      @redirection.begin(continues: !@previous.nil? || ENV.key?(HotRestart::TRIAL))
      @application = Application.new(configuration)
      @application.check
    end

    # Runs the trial of a hot restart, in a process of its own: checks that the next server has the
    # same class as the serving one, and that the application boots.
    def run_trial(server_name)
      if server_name != server_class.name
        raise Failure.new("a restart cannot change between workers and a single process",
                          hint: "stop the server, and start it again")
      end
      @application.load
    end

    def server_class = @configuration.workers.zero? ? Single : Supervisor

    def listen
      uris = @configuration.with_hsts(addresses)
      @listeners = Listeners.new(uris, metrics: @configuration.metrics,
                                       inherited: @previous&.listeners || {},
                                       activated: @activation)
    end

    # The addresses to listen on. With automatic certificates, the agent determines the addresses.
    def addresses
      return @configuration.addresses(@activation) unless @configuration.acme?

      port = @configuration.options[:port]
      @agent = CertificateAgent.new(@configuration, binds: @configuration.binds, port: port)
      @agent.addresses
    end

    def serve
      watch_restart_file if @configuration.restart_file
      start_plugins if @configuration.shows_puma?
      @runner = server_class.new(self, @previous)
      @runner.run do
        @control&.start(purge: ->(pattern) { @runner.purge(pattern) }) { @runner.stats }
        @agent_check&.start { @runner.stats }
        @agent&.begin
        announce
      end
    end

    def start_plugins
      require_relative "../configuration/puma_plugins"
      PumaLibrary.load
      @configuration.offer(:counts, true)
      @plugins = PumaPlugins.new(self)
    end

    # Restarts the server whenever the restart file is touched, as Puma's plugin `tmp_restart` does.
    def watch_restart_file
      path = File.expand_path(@configuration.restart_file)
      last = touched_at(path)
      Thread.new do
        loop do
          sleep RESTART_FILE_SECONDS
          current = touched_at(path)
          Process.kill("USR2", Process.pid) if current && current != last
          last = current
        end
      end
    end

    def touched_at(path)
      File.mtime(path) if File.file?(path)
    rescue SystemCallError
      # Another process removed the file between the two calls.
      nil
    end

    def announce
      milliseconds = (Process.clock_gettime(Process::CLOCK_MONOTONIC) - @started_at) * 1000
      addresses = @listeners.addresses.join(", ")
      text = Failure.text("serving ", @name, " on ", addresses,
                          " (ready in #{milliseconds.round} ms)\n")
      metrics = @listeners.metrics_addresses
      text += "metrics on #{metrics.join(", ")}\n" unless metrics.empty?
      # All lines are written at once, because the reader may close the pipe after the first line.
      print(text)
      @plugins&.fire_background
      Hooks.run(@configuration, :after_booted)
    end

    # Errors are ignored: after a restart the reader may have gone, and a disk may be full.
    def print(text)
      $stdout.write(text)
      $stdout.flush
    rescue SystemCallError
      nil
    end

    # Sets a process title like Puma's, which shows operators the addresses and the application's
    # tag in `ps`.
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

    # Writes the state file, in which `thruway ctl -S` and pumactl find the control application.
    def write_state
      path = @configuration.state_path or return
      state = @control&.state || { "pid" => Process.pid, "running_from" => Dir.pwd }
      text = state.map { |name, value| "#{name}: #{value.is_a?(String) ? value.dump : value}\n" }
      # The file contains the token, so only the owner may read it by default.
      File.write(path, "---\n#{text.join}", perm: @configuration.state_permission || 0o600)
      @state = File.expand_path(path)
    rescue SystemCallError => e
      raise Failure, "cannot write the state file: #{e.message}"
    end

    # Removes the pidfile and the state file, unless they name another server, which was started
    # meanwhile. The server has ended as it was told, so a file that cannot be removed, such as one
    # in a folder that is read-only by now, is only reported.
    def remove_files
      [@pidfile, @state].compact.each do |path|
        File.delete(path) if File.binread(path).match?(/^(?:pid: )?#{Process.pid}$/n)
      rescue Errno::ENOENT
        # Another process has removed it.
      rescue SystemCallError => e
        Signals.say("cannot remove a file of this server: #{e.message}")
      end
    end
  end
end

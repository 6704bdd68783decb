# frozen_string_literal: true

require_relative "application"
require_relative "cluster"
require_relative "control"
require_relative "listeners"
require_relative "redirection"
require_relative "server"

module Thruway
  # Starts a server as it was configured, and says where it is.
  class Launcher
    # `started` is the time of the monotonic clock at which the user asked for it; `name` is what is
    # served, as the user calls it.
    def initialize(configuration, name:, started: Process.clock_gettime(Process::CLOCK_MONOTONIC))
      @configuration = configuration
      @name = name
      @started = started
    end

    # Serves until a signal ends it.
    def run
      @redirection = Redirection.new(@configuration)
      Signals.trap_others { @redirection.renew }
      prepare
      @listeners = Listeners.new(@configuration.addresses, metrics: @configuration.metrics)
      @configuration.offer(:metrics_listener, @listeners.metrics_from)
      @control = Control.open(@configuration)
      write_pidfile
      write_state
      name_process
      serve
      @configuration.run_hooks(:after_stopped)
    ensure
      @listeners&.close
      @control&.close
      remove_pidfile
    end

    # Stops the server, from another thread or a trap.
    def stop
      @runner&.stop
    end

    private

    def prepare
      configuration = @configuration
      configuration.check
      ENV["RACK_ENV"] = configuration.environment
      directory = configuration.options[:directory]
      Dir.chdir(directory) if directory
      @redirection.begin
      @application = Application.new(configuration)
      @application.check
    end

    def serve
      kind = @configuration.workers.zero? ? Single : Cluster
      @runner = kind.new(@configuration, @application, @listeners)
      @runner.run do
        @control&.start { @runner.stats }
        announce
      end
    end

    def announce
      milliseconds = (Process.clock_gettime(Process::CLOCK_MONOTONIC) - @started) * 1000
      addresses = @listeners.addresses.join(", ")
      text = "serving #{@name} on #{addresses} (ready in #{milliseconds.round} ms)\n"
      metrics = @listeners.metrics_addresses
      text += "metrics on #{metrics.join(", ")}\n" unless metrics.empty?
      # At once: its reader may close after the first line.
      $stdout.write(text)
      $stdout.flush
      @configuration.run_hooks(:after_booted)
    end

    # As Puma's, by which operators find it: `ps` shows addresses and the application's tag.
    def name_process
      addresses = @listeners.addresses.map { |address| address.sub(/\Ahttp:/, "tcp:") }
      title = "thruway #{VERSION} (#{addresses.join(",")})"
      tag = @configuration.tag
      Process.setproctitle(tag.to_s.empty? ? title : "#{title} [#{tag}]")
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

  # A server in this very process.
  class Single
    def initialize(configuration, application, listeners)
      @configuration = configuration
      @application = application
      @listeners = listeners
    end

    # Yields when it serves; returns when it was stopped.
    def run
      @server = Server.new(@application.load, @configuration, @listeners.descriptors)
      Signals.trap_stop { stop }
      yield
      @server.run
    end

    # What is counted, as JSON.
    def stats
      @server.engine.stats
    end

    # It may be called from a trap.
    def stop
      @server&.stop
      @listeners.close
    end
  end
end

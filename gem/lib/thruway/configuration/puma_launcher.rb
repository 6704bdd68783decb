# frozen_string_literal: true

require_relative "../control/statistics"
require_relative "../support/json"
require_relative "puma_events"
require_relative "puma_launcher_options"
require_relative "puma_log_writer"

module Thruway
  # The server's interface for plugins, with the methods of `Puma::Launcher`.
  class PumaLauncher
    # The parts of Puma's launcher that this server lacks, and their substitutes.
    MISSING = {
      binder: "Thruway opens its listeners itself; see launcher.options[:binds]",
      write_state: "Thruway writes the state file itself",
      delete_pidfile: "Thruway removes the pidfile itself",
      close_binder_listeners: "Thruway closes its listeners itself",
      restart_args: "Thruway restarts by its own command",
      run: "the server runs already"
    }.freeze

    # The pause between the two signals that halt a server. Without a pause, the kernel would merge
    # both.
    HALT_PAUSE_SECONDS = 0.1

    # The object behind `launcher.config`.
    class Config
      attr_reader :options

      def initialize(options)
        @options = options
      end

      def environment = @options[:environment]
      def rackup = @options[:rackup]
      def app_configured? = !@options[:app].nil? || File.file?(rackup)
      def final_options = @options.to_h

      private

      def respond_to_missing?(*) = false

      def method_missing(name, *)
        raise NoMethodError.new("undefined method `#{name}' for launcher.config in Thruway", name)
      end
    end

    attr_reader :events, :log_writer, :options, :config, :restart_dir

    # `server` responds to `configuration`, `listeners`, `counters` (JSON) and `workers`.
    def initialize(server)
      @server = server
      @log_writer = PumaLogWriter.new
      @events = PumaEvents.new(@log_writer)
      @options = PumaLauncherOptions.new(server.configuration, server.configuration.puma_options)
      @config = Config.new(@options)
      @restart_dir = Dir.pwd
      @started_at = Time.now
    end

    def stats
      Statistics.as_puma(Json.parse(@server.counters), started_at: @started_at,
                                                       clustered: clustered?)
    end

    # The ports of all listeners, including those with TLS.
    def connected_ports
      @server.listeners.addresses.filter_map { |address| address[/:(\d+)\z/, 1]&.to_i }.uniq
    end

    def stop = Process.kill("TERM", Process.pid)
    def restart = Process.kill("USR2", Process.pid)
    def phased_restart = order("USR1", "phased-restart")
    def refork = order("URG", "refork")

    # Stops the server at once, by two INT signals.
    def halt
      Thread.new do
        2.times do
          Process.kill("INT", Process.pid)
          sleep HALT_PAUSE_SECONDS
        end
      end
    end

    # Yields the name and the backtrace of each thread of this process.
    def thread_status
      Thread.list.each do |thread|
        name = "Thread: TID-#{thread.object_id.to_s(36)}"
        name += " #{thread.name}" if thread.name
        yield name, thread.backtrace || ["<no backtrace available>"]
      end
    end

    def clustered? = @server.configuration.workers.positive?

    private

    # Sends an order that only a server with workers follows. A single process restarts instead, as
    # in Puma.
    def order(signal, name)
      unless clustered?
        log_writer.log("* #{name} called but not available, restarting normally.")
        return restart
      end

      Process.kill(signal, Process.pid)
      true
    end

    def respond_to_missing?(*) = false

    def method_missing(name, *)
      reason = MISSING[name]
      text = "undefined method `#{name}' for Puma's launcher in Thruway"
      raise NoMethodError.new(reason ? "#{text}: #{reason}" : text, name)
    end
  end
end

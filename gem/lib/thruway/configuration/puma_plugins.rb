# frozen_string_literal: true

require_relative "../control/statistics"
require_relative "../support/failure"
require_relative "../support/json"
require_relative "../support/signals"
require_relative "puma_names"

# The part of Puma that its plugins use. It is loaded when a configuration names a plugin, and
# defines `Puma` globally.
module Thruway
  module PumaNames
    # The base class of plugins. `create` makes a plugin from a block, in a file
    # `puma/plugin/NAME.rb`.
    class Plugin
      PLACE = %r{puma/plugin/([^/]+)\.rb\z}

      def self.create(&block)
        name = caller_locations(1, 1).first.path[PLACE, 1]
        Plugins.register(name, Class.new(self, &block))
      end

      def in_background(&block)
        Plugins.add_background(block)
      end
    end

    # The registry of plugin classes and of the blocks that they run in threads.
    module Plugins
      @classes = {}
      @background = []

      class << self
        def register(name, plugin)
          @classes[name] = plugin
        end

        def find(name) = @classes[name.to_s]

        def add_background(block)
          @background << block
        end

        # Starts the threads, once.
        def fire_background
          blocks, @background = @background, []
          blocks.each_with_index do |block, index|
            Thread.new do
              PumaNames.set_thread_name("plgn bg #{index}")
              block.call
            end
          end
        end
      end
    end

    # The events of the server, by the names of Puma 7 and later and by the older ones.
    class Events
      NAMES = { after_booted: :after_booted, on_booted: :after_booted,
                after_stopped: :after_stopped, on_stopped: :after_stopped,
                before_restart: :before_restart, on_restart: :before_restart }.freeze

      def initialize
        @hooks = Hash.new { |hooks, name| hooks[name] = [] }
      end

      NAMES.each { |word, name| define_method(word) { |&block| register(name, &block) } }

      def register(name, object = nil, &block)
        @hooks[NAMES.fetch(name, name)] << (object || block)
      end

      # Calls the hooks of an event. An exception is logged, and does not end the server.
      def fire(name, *arguments)
        @hooks[name].each do |hook|
          hook.call(*arguments)
        rescue StandardError => e
          Signals.say("a plugin failed in #{name}: #{e.message.lines.first&.chomp} (#{e.class})")
        end
      end
    end

    # Writes the log lines of plugins to the server's log.
    class LogWriter
      def log(text) = Signals.say(text)

      alias write log
      alias error log

      def debug(_text = nil) = nil

      def debug? = false
      def stdout = $stdout
      def stderr = $stderr
    end

    # The interface to the server that plugins get.
    class Launcher
      attr_reader :events, :log_writer, :options

      # The block returns the server's counters as JSON.
      def initialize(options, clustered:, &counters)
        @events = Events.new
        @log_writer = LogWriter.new
        @options = options
        @clustered = clustered
        @counters = counters
        @started_at = Time.now
      end

      def stats
        Statistics.as_puma(Json.parse(@counters.call), started_at: @started_at,
                                                       clustered: @clustered)
      end

      def stop = Process.kill("TERM", Process.pid)
      def restart = Process.kill("USR2", Process.pid)
      def phased_restart = Process.kill("USR1", Process.pid)
    end

    class << self
      attr_accessor :stats_object

      def stats_hash = stats_object.stats
      def stats = Json.generate(stats_hash)
    end
  end

  # The plugins of a server. They start once, even if the configuration is read again.
  class PumaPlugins
    # The features of Puma that plugins may require, and that this file replaces.
    FEATURES = %w[puma puma/plugin puma/dsl puma/const puma/events puma/log_writer].freeze

    # Creates the plugin of that name from a gem of the application's bundle.
    def self.create(name)
      provide
      require "puma/plugin/#{name}" unless PumaNames::Plugins.find(name)
      PumaNames::Plugins.find(name)&.new or
        raise LoadError, "its file registers no plugin"
    end

    def self.provide
      return if @is_provided

      @is_provided = true
      set_up_bundle
      # The bundle may contain Puma itself, which must not be loaded.
      Object.const_set(:Puma, PumaNames) unless Object.const_defined?(:Puma)
      (PumaNames.constants - ::Puma.constants).each do |name|
        ::Puma.const_set(name, PumaNames.const_get(name))
      end
      ::Puma.const_set(:DSL, ConfigurationFile) unless ::Puma.const_defined?(:DSL, false)
      $LOADED_FEATURES.concat(FEATURES.map { |feature| "#{feature}.rb" })
    end

    # Sets up the application's bundle, which contains the plugin's gem.
    def self.set_up_bundle
      return if defined?(Bundler) && ENV.key?("BUNDLE_BIN_PATH")

      require "bundler/setup" if ENV.key?("BUNDLE_GEMFILE") || File.file?("Gemfile")
    end

    private_class_method :provide, :set_up_bundle

    def initialize(configuration, &counters)
      @launcher = PumaNames::Launcher.new(configuration.plugin_options,
                                          clustered: configuration.workers.positive?, &counters)
      PumaNames.stats_object = @launcher
      attach(configuration)
      configuration.plugins.each { |name, plugin| start(name, plugin) }
    end

    # Passes the server's events on to the plugins. It is called for each new configuration.
    def attach(configuration)
      %i[after_booted after_stopped before_restart].each do |name|
        configuration.hooks[name] << ->(*) { @launcher.events.fire(name) }
      end
    end

    # Starts the threads of plugins. The application must be loaded, since they may use it.
    def fire_background = PumaNames::Plugins.fire_background

    private

    def start(name, plugin)
      plugin.start(@launcher) if plugin.respond_to?(:start)
    rescue ScriptError, StandardError => e
      raise Failure, "plugin #{name.to_sym.inspect} cannot start: #{e.message.lines.first&.chomp}"
    end
  end
end

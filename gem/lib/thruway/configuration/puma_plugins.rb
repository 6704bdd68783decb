# frozen_string_literal: true

require_relative "../control/control"
require_relative "../control/statistics"
require_relative "../support/failure"
require_relative "../support/signals"
require_relative "puma_names"

# What plugins of Puma are written against. It is loaded when a configuration names a plugin, and
# `Puma` has its name everywhere from then on.
module Thruway
  module PumaNames
    # A plugin: a class that `create` makes from a block, in a file `puma/plugin/NAME.rb`.
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

    # The classes of plugins by their names, and what they do in threads.
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

        # Once: a plugin adds its threads when it starts.
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

    # What plugins are told about the server, by Puma's names of today and of before Puma 7.
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

      # A plugin that fails ends no server.
      def fire(name, *arguments)
        @hooks[name].each do |hook|
          hook.call(*arguments)
        rescue StandardError => e
          Signals.say("a plugin failed at #{name}: #{e.message.lines.first&.chomp} (#{e.class})")
        end
      end
    end

    # Lines of plugins, beside those of the server.
    class LogWriter
      def log(text) = Signals.say(text)

      alias write log
      alias error log

      def debug(_text = nil) = nil

      def debug? = false
      def stdout = $stdout
      def stderr = $stderr
    end

    # The server, as plugins see it.
    class Launcher
      attr_reader :events, :log_writer, :options

      # The block gives what the server has counted, as JSON.
      def initialize(options, clustered:, &counted)
        @events = Events.new
        @log_writer = LogWriter.new
        @options = options
        @clustered = clustered
        @counted = counted
        @started = Time.now
      end

      def stats
        Statistics.as_puma(Json.parse(@counted.call), started: @started, clustered: @clustered)
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

  # The plugins of a server. They start once; a configuration that is read again starts none.
  class PumaPlugins
    # Libraries of Puma's that plugins require, and that are here.
    FEATURES = %w[puma puma/plugin puma/dsl puma/const puma/events puma/log_writer].freeze

    # Makes the plugin of that name, from a gem of the application's bundle.
    def self.create(name)
      provide
      require "puma/plugin/#{name}" unless PumaNames::Plugins.find(name)
      PumaNames::Plugins.find(name)&.new or raise LoadError, "its file registers no plugin"
    end

    def self.provide
      return if @is_provided

      @is_provided = true
      set_up_bundle
      # Puma itself may be in the bundle: it is not loaded then.
      Object.const_set(:Puma, PumaNames) unless Object.const_defined?(:Puma)
      (PumaNames.constants - ::Puma.constants).each do |name|
        ::Puma.const_set(name, PumaNames.const_get(name))
      end
      ::Puma.const_set(:DSL, ConfigurationFile) unless ::Puma.const_defined?(:DSL, false)
      $LOADED_FEATURES.concat(FEATURES.map { |feature| "#{feature}.rb" })
    end

    # The plugin's gem is the application's.
    def self.set_up_bundle
      return if defined?(Bundler) && ENV.key?("BUNDLE_BIN_PATH")

      require "bundler/setup" if ENV.key?("BUNDLE_GEMFILE") || File.file?("Gemfile")
    end

    private_class_method :provide, :set_up_bundle

    def initialize(configuration, &counted)
      @launcher = PumaNames::Launcher.new(configuration.plugin_options,
                                          clustered: configuration.workers.positive?, &counted)
      PumaNames.stats_object = @launcher
      attach(configuration)
      configuration.plugins.each { |name, plugin| start(name, plugin) }
    end

    # Events of the server go to the plugins, whichever configuration holds.
    def attach(configuration)
      %i[after_booted after_stopped before_restart].each do |name|
        configuration.hooks[name] << ->(*) { @launcher.events.fire(name) }
      end
    end

    # When the application is loaded, whose methods they use.
    def fire_background = PumaNames::Plugins.fire_background

    private

    def start(name, plugin)
      plugin.start(@launcher) if plugin.respond_to?(:start)
    rescue ScriptError, StandardError => e
      raise Failure, "plugin #{name.to_sym.inspect} does not run here: " \
                     "#{e.message.lines.first&.chomp}"
    end
  end
end

# frozen_string_literal: true

require_relative "../support/json"
require_relative "puma_events"
require_relative "puma_log_writer"
require_relative "puma_names"

# The parts of Puma that plugins use, for bundles without Puma itself.
module Thruway
  module PumaNames
    class UnknownPlugin < RuntimeError; end
    class UnsupportedOption < RuntimeError; end

    Events = PumaEvents
    LogWriter = PumaLogWriter

    # Plugins add directives to this class.
    class DSL; end

    # The base class of plugins. `create` makes a plugin from a block, in a file
    # `puma/plugin/NAME.rb`.
    class Plugin
      PLACE = %r{puma/plugin/([^/]+)\.rb\z}

      def self.create(&block)
        path = caller_locations(1, 1).first.path
        name = path[PLACE, 1] or
          raise UnknownPlugin, "#{path} is not in a folder puma/plugin, so its plugin has no name"
        Plugins.register(name, Class.new(self, &block))
      end

      def in_background(&block)
        Plugins.add_background(block)
      end
    end

    # The registry of plugin classes, and of blocks that plugins run in threads.
    class PluginRegistry
      def initialize
        @plugins = {}
        @background = []
      end

      def register(name, plugin)
        @plugins[name.to_s] = plugin
      end

      def find(name)
        require "puma/plugin/#{name}" unless @plugins.key?(name.to_s)
        @plugins[name.to_s] or raise UnknownPlugin, "its file registers no plugin"
      rescue LoadError
        raise UnknownPlugin, "Unable to find plugin: #{name}"
      end

      def add_background(block)
        @background << block
      end

      # Starts the threads, each once.
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

    Plugins = PluginRegistry.new

    # Generates the JSON of statistics.
    module JSONSerialization
      def self.generate(object) = Json.generate(object)
    end

    class << self
      attr_accessor :stats_object

      def stats_hash = stats_object.stats
      def stats = Json.generate(stats_hash)

      # Plugins report deprecated names here. This server has nothing to report.
      def deprecate_method_change(*) = nil
    end
  end
end

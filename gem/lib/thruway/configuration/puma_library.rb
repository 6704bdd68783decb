# frozen_string_literal: true

require_relative "../support/failure"
require_relative "puma_names"

module Thruway
  # The module `Puma` that plugins see. If the bundle contains Puma, the module is Puma's own
  # library, with no server of Puma started: plugins were written for the library, and other code
  # may use all of it. Otherwise the module is `PumaNames` with the parts that plugins use.
  module PumaLibrary
    # The features of Puma that plugins may require, and that `puma_parts` replaces.
    FEATURES = %w[puma puma/plugin puma/dsl puma/const puma/events puma/log_writer puma/detect
                  puma/json_serialization].freeze

    # The features of Puma that a running server of Puma has loaded. `puma/configuration` comes
    # before `puma/dsl`, which depends on it in Puma 5.
    OWN_FEATURES = %w[puma/const puma/configuration puma/plugin puma/events].freeze

    # The libraries that Puma loads and plugins rely on.
    LIBRARIES = %w[socket tempfile uri stringio].freeze

    # Parts of Puma without a stand-in, each with the reason.
    MISSING = {
      Binder: "Thruway opens its listeners itself", MiniSSL: "Thruway has a TLS of its own",
      Launcher: "the server is Thruway's", CLI: "the server is Thruway's",
      Runner: "the server is Thruway's", Single: "the server is Thruway's",
      Configuration: "Thruway reads the configuration itself"
    }.freeze

    class << self
      # Loads the library, once.
      def load
        return if @is_loaded

        @is_loaded = true
        set_up_bundle
        own? ? load_own : install_parts
        @words = directives
      end

      # Whether the module is Puma's own library.
      def own? = defined?(@is_own) ? @is_own : (@is_own = require_own)

      # The directives that plugins have added to `Puma::DSL`.
      def added_words = @is_loaded ? directives.keys - @words.keys : []

      # The directives of Puma that plugins have replaced. This server would not call the
      # replacements.
      def replaced_words
        return [] unless @is_loaded

        directives.filter_map { |word, method| word if @words.fetch(word, method) != method }
      end

      # Returns an object of the class `Puma::DSL` with these `options`. Its methods for Puma's own
      # directives call `file`.
      def words(file, options, directives)
        words = ::Puma::DSL.allocate
        words.instance_variable_set(:@options, options)
        (directives - added_words).each do |name|
          words.define_singleton_method(name) do |*values, **named, &block|
            file.public_send(name, *values, **named, &block)
          end
        end
        words
      end

      # Lets `Puma.stats` and `Puma.cli_config` return the values of `launcher`.
      def serve_with(launcher)
        ::Puma.stats_object = launcher
        ::Puma.singleton_class.attr_accessor(:cli_config) unless ::Puma.respond_to?(:cli_config)
        ::Puma.cli_config = launcher.config
      end

      # Returns a message about a constant that the stand-in lacks.
      def explain_missing(name)
        reason = MISSING.fetch(name, "it is a part of Puma itself")
        hint = "; with gem \"puma\" in the Gemfile, plugins find it" unless MISSING.key?(name)
        "uninitialized constant Puma::#{name}: #{reason}#{hint}"
      end

      private

      def directives
        ::Puma::DSL.public_instance_methods.to_h do |name|
          [name, ::Puma::DSL.instance_method(name)]
        end
      end

      def require_own
        require "puma"
        ::Puma.const_defined?(:Const) && ::Puma.respond_to?(:stats_object=)
      rescue LoadError
        false
      end

      def load_own
        OWN_FEATURES.each { |feature| require feature }
      end

      def install_parts
        LIBRARIES.each { |library| require library }
        require_relative "puma_parts"
        Object.const_set(:Puma, PumaNames) unless Object.const_defined?(:Puma)
        # A gem may have defined the module already, with its own additions.
        (PumaNames.constants - ::Puma.constants).each do |name|
          ::Puma.const_set(name, PumaNames.const_get(name))
        end
        (PumaNames.singleton_methods - ::Puma.singleton_methods).each do |name|
          ::Puma.define_singleton_method(name, &PumaNames.method(name))
        end
        $LOADED_FEATURES.concat(FEATURES.map { |feature| "#{feature}.rb" })
      end

      # Sets up the application's bundle, which contains the gems of plugins.
      def set_up_bundle
        return if defined?(Bundler) && ENV.key?("BUNDLE_BIN_PATH")

        require "bundler/setup" if ENV.key?("BUNDLE_GEMFILE") || gemfile?
      end

      # Whether the current folder or a folder above has a Gemfile, as Bundler searches.
      def gemfile?
        folder = Dir.pwd
        loop do
          return true if %w[Gemfile gems.rb].any? { |name| File.file?(File.join(folder, name)) }

          above = File.dirname(folder)
          return false if above == folder

          folder = above
        end
      end
    end
  end
end

# frozen_string_literal: true

require_relative "../support/failure"

module Thruway
  # The object behind `@options`, which Puma's configuration files use. Setting an option calls the
  # directive for the option, with the same effects and errors.
  class PumaOptions
    # Options whose names differ from those of the directives.
    DIRECTIVES = { preload_app: :preload_app!, state: :state_path, restart_cmd: :restart_command,
                   min_threads: :threads, max_threads: :threads }.freeze

    # The Array `binds` is modified in place.
    def initialize(file, binds)
      @file = file
      @binds = binds
      @added = {}
    end

    # The options that only plugins use, by name.
    attr_reader :added

    def [](key)
      case key.to_sym
      when :binds then @binds
      when :control_url then @file.get(:control)&.fetch(:uri)
      when :control_auth_token then @file.get(:control)&.fetch(:token)
      else @added.fetch(key.to_sym) { @file.get(key) }
      end
    end

    def []=(key, value)
      key.to_sym == :binds ? @binds.replace(Array(value)) : set(key, value)
    end

    def key?(key) = !self[key].nil?

    def fetch(key, default = nil)
      value = self[key]
      return value unless value.nil?

      block_given? ? yield(key) : default
    end

    private

    # Adds an option that a plugin's directive uses.
    def add(key, value)
      raise Failure, "unknown option @options[#{key.inspect}] in the configuration" unless
        @file.plugins?

      @added[key.to_sym] = value
    end

    def set(key, value)
      word = DIRECTIVES.fetch(key.to_sym, key.to_sym)
      return add(key, value) unless ConfigurationFile::OPTION_WORDS.include?(word)

      return @file.threads(*thread_limits(key.to_sym, value)) if word == :threads

      @file.public_send(word, value)
    end

    # Both limits: the new value of one, and the other adapted to it.
    def thread_limits(key, value)
      least, most = %i[min_threads max_threads].map { |name| self[name] || value }
      key == :min_threads ? [value, [most, value].max] : [[least, value].min, value]
    end
  end
end

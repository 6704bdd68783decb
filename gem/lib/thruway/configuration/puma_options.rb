# frozen_string_literal: true

require_relative "../support/failure"

module Thruway
  # `@options` of a configuration file: Puma keeps there what the file has said. An option is set by
  # the word of its name, so it does what that does, or is refused.
  class PumaOptions
    # Options whose words have other names.
    WORDS = { preload_app: :preload_app!, state: :state_path, restart_cmd: :restart_command,
              min_threads: :threads, max_threads: :threads }.freeze

    # `binds` is changed in place.
    def initialize(file, binds)
      @file = file
      @binds = binds
      @added = {}
    end

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

    # Words of plugins have options of their own.
    def add(key, value)
      raise Failure, "a configuration sets @options[#{key.inspect}], which is no option" unless
        @file.plugins?

      @added[key.to_sym] = value
    end

    def set(key, value)
      word = WORDS.fetch(key.to_sym, key.to_sym)
      return add(key, value) unless ConfigurationFile::OPTION_WORDS.include?(word)

      # All threads run from the start, so only the larger number counts.
      value = [value, self[:max_threads] || 0].max if key.to_sym == :min_threads
      @file.public_send(word, value)
    end
  end
end

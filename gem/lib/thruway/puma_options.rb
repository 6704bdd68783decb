# frozen_string_literal: true

require_relative "failure"

module Thruway
  # `@options` of a configuration file: Puma keeps there what the file has said. An option is set by
  # the word of its name, so it does what that does, or is refused.
  class PumaOptions
    # Options whose words have other names.
    WORDS = { preload_app: :preload_app!, state: :state_path, restart_cmd: :restart_command,
              min_threads: :threads, max_threads: :threads }.freeze

    # Words of a file that are no options.
    OTHERS = %i[get inject load passed_over read].freeze

    # `binds` is changed in place.
    def initialize(file, binds)
      @file = file
      @binds = binds
    end

    def [](key)
      key.to_sym == :binds ? @binds : @file.get(key)
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

    def set(key, value)
      word = WORDS.fetch(key.to_sym, key.to_sym)
      raise Failure, "a configuration sets @options[#{key.inspect}], which is no option" unless
        words.include?(word)

      # All threads run from the start, so only the larger number counts.
      value = [value, self[:max_threads] || 0].max if key.to_sym == :min_threads
      @file.public_send(word, value)
    end

    def words
      own = @file.class.ancestors.take_while { |one| one != Object }
      own.flat_map { |one| one.public_instance_methods(false) } - OTHERS
    end
  end
end

# frozen_string_literal: true

module Thruway
  # What Ruby itself is set to when the application is loaded.
  module Runtime
    # An object is old once it has survived so many collections.
    OLD_AGE = 3

    # Options of Ruby's that decide about YJIT.
    YJIT_OPTIONS = /--(?:yjit|jit|disable[-=](?:yjit|jit))\b/

    module_function

    # Turns YJIT on where the Ruby has it, unless something else decides: Ruby's options and
    # variables, or Rails from 7.2 on (`config.yjit`).
    def enable_yjit(configuration)
      return if configuration.yjit == false || !switchable? || RubyVM::YJIT.enabled?

      RubyVM::YJIT.enable if configuration.yjit == true || (undecided? && !configuration.local?)
    end

    # Makes the heap ready for forks, which share it longer: what lives becomes old, so that a
    # worker's minor collections leave it alone. Ruby 3.3 and later also give empty pages back.
    def warm_up
      Process.respond_to?(:warmup) ? Process.warmup : OLD_AGE.times { GC.start }
    end

    def switchable?
      defined?(RubyVM::YJIT) && RubyVM::YJIT.respond_to?(:enable)
    end

    def undecided?
      return false if ENV.key?("RUBY_YJIT_ENABLE") || ENV["RUBYOPT"]&.match?(YJIT_OPTIONS)

      rails = defined?(Rails.application) && Rails.application
      !(rails && rails.config.respond_to?(:yjit))
    end
  end
end

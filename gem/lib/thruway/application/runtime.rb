# frozen_string_literal: true

module Thruway
  # Ruby's own settings, applied when the application is loaded.
  module Runtime
    # The number of collections after which an object counts as old.
    OLD_AGE = 3

    # Options of Ruby that control YJIT.
    YJIT_OPTIONS = /--(?:yjit|jit|disable[-=](?:yjit|jit))\b/

    module_function

    # Enables YJIT if Ruby has it, unless Ruby's options or variables, or Rails from 7.2 on
    # (`config.yjit`), control it.
    def enable_yjit(configuration)
      return if configuration.yjit == false || !switchable? || RubyVM::YJIT.enabled?

      RubyVM::YJIT.enable if configuration.yjit == true || (undecided? && !configuration.local?)
    end

    # Prepares the heap for forks, so that workers share it longer: live objects become old, and
    # minor collections in a worker then do not touch them. Ruby 3.3 and later also release empty
    # pages.
    def warm_up
      Process.respond_to?(:warmup) ? Process.warmup : OLD_AGE.times { GC.start }
    end

    def switchable?
      defined?(RubyVM::YJIT) && RubyVM::YJIT.respond_to?(:enable)
    end

    # Whether neither the environment nor Rails decides on YJIT.
    def undecided?
      return false if ENV.key?("RUBY_YJIT_ENABLE") || ENV["RUBYOPT"]&.match?(YJIT_OPTIONS)

      rails = defined?(Rails.application) && Rails.application
      !(rails && rails.config.respond_to?(:yjit))
    end
  end
end

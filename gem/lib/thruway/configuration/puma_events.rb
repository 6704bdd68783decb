# frozen_string_literal: true

require_relative "../support/signals"
require_relative "puma_log_writer"

module Thruway
  # The events of the server, by the names of Puma 7 and later, and by the older names.
  class PumaEvents
    NAMES = { after_booted: :after_booted, on_booted: :after_booted,
              after_stopped: :after_stopped, on_stopped: :after_stopped,
              before_restart: :before_restart, on_restart: :before_restart }.freeze

    # The events of Puma that this server lacks, and their substitutes.
    MISSING = { ping!: "workers report to the engine; read launcher.stats",
                ping: "workers report to the engine; read launcher.stats" }.freeze

    # The methods that Puma 5 defines here, and later versions in the `LogWriter`.
    LOG_METHODS = (PumaLogWriter.public_instance_methods(false) - %i[formatter= custom_logger=])
                  .freeze

    def initialize(log_writer = PumaLogWriter.new)
      @log_writer = log_writer
      @hooks = Hash.new { |hooks, name| hooks[name] = [] }
    end

    NAMES.each { |word, name| define_method(word) { |&block| register(name, &block) } }

    NAMES.values.uniq.each { |name| define_method(:"fire_#{name}!") { fire(name) } }

    LOG_METHODS.each do |name|
      define_method(name) { |*values, &block| @log_writer.public_send(name, *values, &block) }
    end

    def register(name, object = nil, &block)
      hook = object || block
      raise ArgumentError, "Specify either an object or a block" if object && block
      raise ArgumentError, "#{name} takes a block" unless hook

      if (instead = MISSING[name])
        raise NoMethodError, "there is no event #{name.inspect} in Thruway: #{instead}"
      end

      @hooks[NAMES.fetch(name, name)] << hook
      hook
    end

    # Calls the hooks of an event. An exception is logged, and does not end the server.
    def fire(name, *arguments)
      @hooks[NAMES.fetch(name, name)].each do |hook|
        hook.call(*arguments)
      rescue ScriptError, StandardError => e
        Signals.say("a plugin failed in #{name}: #{e.message.lines.first&.chomp} (#{e.class})")
      end
    end
  end
end

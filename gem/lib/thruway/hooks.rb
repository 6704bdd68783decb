# frozen_string_literal: true

require_relative "signals"

module Thruway
  # Calls what a configuration has for a moment (`before_fork`, `after_booted`, …).
  module Hooks
    module_function

    # Calls all of them. One that raises is told of, and costs neither the others nor the server.
    # With `may_exit` an `exit` ends the process, as in a worker that cannot boot.
    def run(configuration, name, *arguments, may_exit: false)
      configuration.hooks.fetch(name).each do |hook|
        hook.call(*arguments)
      rescue SignalException
        raise
      rescue Exception => e # rubocop:disable Lint/RescueException
        raise if may_exit && e.is_a?(SystemExit)

        Signals.say("the hook #{name} raised #{Hooks.describe(e)}")
      end
    end

    # Of an exception, in one line. Messages and paths may have any bytes.
    def describe(error)
      place = error.backtrace&.first
      line = "#{error.class}: ".b << error.message.to_s.b.lines.first.to_s.chomp
      place ? line << " (" << place.b << ")" : line
    end
  end
end

# frozen_string_literal: true

require_relative "failure"
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

    # Of an exception, in one line.
    def describe(error)
      place = error.backtrace&.first
      line = Failure.text(error.class, ": ", error.message.to_s.lines.first&.chomp)
      place ? line << Failure.text(" (", place, ")") : line
    end
  end
end

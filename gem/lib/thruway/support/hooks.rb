# frozen_string_literal: true

require_relative "failure"
require_relative "signals"

module Thruway
  # Calls the hooks of a configuration (`before_fork`, `after_booted`, …).
  module Hooks
    module_function

    # Calls all hooks of one name. An exception is logged, and affects neither the other hooks nor
    # the server. With `may_exit`, a hook may end the process by `exit`, as a worker's boot may.
    def run(configuration, name, *arguments, may_exit: false)
      configuration.hooks.fetch(name).each do |hook|
        hook.call(*arguments)
      rescue Exception => e # rubocop:disable Lint/RescueException
        raise if may_exit && e.is_a?(SystemExit)
        # Ruby raises the exceptions of signals in the main thread only.
        raise if e.is_a?(SignalException) && Thread.current == Thread.main

        Signals.say("the hook #{name} raised #{Hooks.describe(e)}")
      end
    end

    # Describes an exception in one line.
    def describe(error)
      place = error.backtrace&.first
      line = Failure.text(error.class, ": ", message(error).lines.first&.chomp)
      place ? line << Failure.text(" (", place, ")") : line
    end

    # The message of an exception; empty if its method `message` raises itself.
    def message(error)
      error.message.to_s
    rescue StandardError
      ""
    end
  end
end

# frozen_string_literal: true

require_relative "../server/server"
require_relative "../support/failure"
require_relative "../support/signals"

module Thruway
  # Rails keeps the state of a request, such as `Current` and the database connection, by thread or
  # by fiber. Where requests run in fibers, it has to be by fiber: otherwise requests of one thread
  # see each other's.
  module RailsIsolation
    LINE = "config.active_support.isolation_level = :fiber"

    class << self
      # Called before the application is loaded. If requests run in fibers, the Railtie sets the
      # level: it is loaded as soon as the application has loaded the class Rails::Railtie.
      def prepare(configuration)
        return if configuration.fibers.zero? || defined?(Rails::Railtie)

        @trace = TracePoint.new(:end) do |point|
          next unless defined?(Rails::Railtie) && point.self.equal?(Rails::Railtie)

          @trace.disable
          require_relative "railtie"
        end
        @trace.enable
      end

      # Raises `Failure` if the application, which is loaded, keeps state by thread.
      def check(configuration)
        @trace&.disable
        return if configuration.fibers.zero?

        check_level
        check_active_record
        check_sequel
        check_locale
      end

      private

      def check_level
        if defined?(ActiveSupport::IsolatedExecutionState)
          return if ActiveSupport::IsolatedExecutionState.isolation_level == :fiber

          raise Failure.new("cannot run Rails in fibers: its state is kept by thread",
                            hint: "add #{LINE} to config/application.rb")
        end
        refuse("Rails before 7.0", "the state of requests") if defined?(Rails::Application)
        refuse("Active Record before 7.1", "connections") if defined?(ActiveRecord::Base)
      end

      # Rails 7.0 knows fibers, but its pools do not: two requests of a thread share a connection,
      # and its transaction. `context` came with the pools that do.
      def check_active_record
        return if !defined?(ActiveRecord::Base) ||
                  ActiveSupport::IsolatedExecutionState.respond_to?(:context)

        refuse("Active Record before 7.1", "connections")
      end

      # Sequel's pools ask `Sequel.current` for the owner of a connection.
      def check_sequel
        return if !defined?(Sequel::DATABASES) || Sequel::DATABASES.empty?
        return if Sequel.respond_to?(:current) && Sequel.current.equal?(Fiber.current)

        raise Failure.new("cannot run Sequel in fibers: it keeps connections by thread",
                          hint: "add Sequel.extension(:fiber_concurrency) before the application " \
                                "connects")
      end

      # Warns only: an application may have one language.
      def check_locale
        return unless defined?(I18n.config)

        config = Fiber.new(**Server::FIBER_OPTIONS) { I18n.config }.resume
        return unless config.equal?(I18n.config)

        Signals.say("I18n keeps the locale by thread: a request that waits may go on in the " \
                    "locale of another; update i18n, or pass `locale:` to each translation")
      end

      def refuse(library, state)
        raise Failure.new("cannot run #{library} in fibers: it keeps #{state} by thread",
                          hint: "use waiting_threads instead of fibers")
      end
    end
  end
end

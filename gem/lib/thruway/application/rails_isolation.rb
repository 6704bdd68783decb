# frozen_string_literal: true

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
        check_level if configuration.fibers > 0
        warn_of_a_small_pool(configuration)
      end

      private

      def check_level
        if defined?(ActiveSupport::IsolatedExecutionState)
          return if ActiveSupport::IsolatedExecutionState.isolation_level == :fiber

          raise Failure.new("cannot run Rails in fibers: its state is kept by thread",
                            hint: "add #{LINE} to config/application.rb")
        end
        return unless defined?(ActiveRecord::Base)

        raise Failure.new("cannot run Rails before 7.0 in fibers: it keeps connections by thread",
                          hint: "use waiting_threads instead of fibers")
      end

      def warn_of_a_small_pool(configuration)
        size = pool_size or return
        limits = configuration.thread_limits
        count = limits[:fibers].nonzero? ||
                limits.values_at(:threads, :max_io_threads, :waiting_threads).sum
        return if size >= count

        what = limits[:fibers].zero? ? "threads" : "fibers"
        Signals.say("ActiveRecord's pool has #{size} connections for up to #{count} #{what}: " \
                    "requests beyond that wait for a connection; set `pool` in database.yml")
      end

      def pool_size
        return unless defined?(ActiveRecord::Base)

        ActiveRecord::Base.connection_db_config.pool.to_i
      rescue StandardError
        # No database is configured.
        nil
      end
    end
  end
end

# frozen_string_literal: true

require_relative "../support/failure"
require_relative "../support/signals"

module Thruway
  # The pools of connections that the application's database libraries have. A request that finds
  # no connection waits for one, and raises after some seconds. Nothing here loads a library or
  # opens a connection.
  class DatabasePools
    # The settings that make the pool of each library larger.
    CURES = { "Active Record" => "set `pool` in config/database.yml",
              "Sequel" => "set `max_connections` where the application connects" }.freeze

    class << self
      # Logs which pools are smaller than the number of requests that may use them at a time. Active
      # Record that is not loaded yet is checked when it is.
      def check(configuration)
        if awaits_active_record?
          return if @awaits

          @awaits = true
          ActiveSupport.on_load(:active_record) { DatabasePools.check(configuration) }
        else
          new(configuration).warnings.each { |text, cure| Signals.say("#{text}; #{cure}") }
        end
      end

      # Whether Active Record is there and not loaded.
      def awaits_active_record?
        defined?(ActiveRecord) && !ActiveRecord.autoload?(:Base).nil? &&
          ActiveSupport.respond_to?(:on_load)
      end
    end

    def initialize(configuration)
      limits = configuration.thread_limits
      @kind = limits[:fibers].zero? ? "threads" : "fibers"
      @count = limits[:fibers].nonzero? ||
               limits.values_at(:threads, :max_io_threads, :waiting_threads).sum
    end

    # The libraries of databases that are loaded.
    def libraries
      libraries = []
      libraries << "Active Record" if active_record?
      libraries << "Sequel" if defined?(Sequel::DATABASES)
      libraries
    end

    # Whether each pool is large enough. Returns a sentence and a cure for each library that has
    # smaller ones.
    def warnings
      { "Active Record" => active_record, "Sequel" => sequel }.filter_map do |library, pools|
        small = pools.select { |_, size| size && size < @count }
        [describe(library, small, pools), CURES.fetch(library)] if small.any?
      end
    end

    # The sentence for pools that are large enough.
    def praise = "enough connections for #{@count} #{@kind}"

    private

    def describe(library, small, pools)
      sizes = small.map { |name, size| pools.one? ? size : "#{size} (#{name.to_s.inspect})" }
      "#{library}'s #{small.one? ? "pool has" : "pools have"} #{sizes.join(" and ")} connections " \
        "for up to #{@count} #{@kind}: requests beyond that wait for a connection"
    end

    def active_record?
      defined?(ActiveRecord) && ActiveRecord.autoload?(:Base).nil? && defined?(ActiveRecord::Base)
    end

    # The names and sizes of the pools; nil for a pool without a limit.
    def active_record
      return [] unless active_record?

      handler = ActiveRecord::Base.connection_handler
      # Rails 7.1 deprecates the other name, which is that of 6.1 and 7.0.
      pools = if ActiveRecord.version >= Gem::Version.new("7.1")
                handler.connection_pool_list(:all)
              elsif handler.respond_to?(:all_connection_pools)
                handler.all_connection_pools
              else
                []
              end
      pools.map { |pool| [pool.db_config.name, pool.size] }.uniq
    end

    def sequel
      return [] unless defined?(Sequel::DATABASES)

      Sequel::DATABASES.map { |database| [database.opts[:database], database.pool.max_size] }
    end
  end
end

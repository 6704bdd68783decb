# frozen_string_literal: true

module Thruway
  # The object of the class `Puma::Cluster`, which gems look for to see and end the workers, such as
  # `puma_worker_killer`.
  module PumaCluster
    # One worker, with the methods of `Puma::Cluster::WorkerHandle`.
    WorkerHandle = Struct.new(:index, :pid, :started_at, :is_booted) do
      def phase = 0
      def booted? = is_booted
      def uptime = Time.now - started_at
      def term = signal("TERM")
      def kill = signal("KILL")
      def hup = signal("HUP")

      # Two handles of one process are equal, so that a Hash may be keyed by them.
      def eql?(other) = other.is_a?(self.class) && pid == other.pid
      alias_method :==, :eql?

      def hash = pid.hash

      private

      def signal(name)
        Process.kill(name, pid)
      rescue Errno::ESRCH
        nil
      end
    end

    # The workers that exist now.
    class Workers
      include Enumerable

      def initialize(&find)
        @find = find
      end

      def each(&) = @find.call.each(&)
      def size = @find.call.size
      def empty? = @find.call.empty?
      def [](index) = @find.call[index]

      alias length size
    end

    # Puts an object of the class `Puma::Cluster` into the process. `find` returns the workers.
    def self.create(launcher, &find)
      cluster = cluster_class.allocate
      { launcher: launcher, log_writer: launcher.log_writer, events: launcher.events,
        options: launcher.options, workers: Workers.new(&find), phase: 0 }.each do |name, value|
        cluster.instance_variable_set(:"@#{name}", value)
      end
      cluster.define_singleton_method(:log) { |text| launcher.log_writer.log(text) }
      cluster.define_singleton_method(:stats) { launcher.stats }
      cluster
    end

    # Puma's own class, if the library is Puma's own: it may be loaded later by something else.
    def self.cluster_class
      require "puma/cluster" if PumaLibrary.own?
      ::Puma.const_set(:Cluster, Class.new { attr_reader :workers, :options }) unless
        ::Puma.const_defined?(:Cluster)
      ::Puma::Cluster
    end
    private_class_method :cluster_class
  end
end

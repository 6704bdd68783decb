# frozen_string_literal: true

module Thruway
  # The object of the class `Puma::Cluster`. Gems such as `puma_worker_killer` find the object to
  # see and end the workers.
  module PumaCluster
    # One worker, with the methods of `Puma::Cluster::WorkerHandle`.
    WorkerHandle = Struct.new(:index, :pid, :started_at, :is_booted) do
      def phase = 0
      def booted? = is_booted
      def uptime = Time.now - started_at
      def term = signal("TERM")
      def kill = signal("KILL")
      def hup = signal("HUP")

      # Two handles of the same process are equal, so that a Hash may use handles as keys.
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

    # The current workers.
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

    # Returns Puma's own class if the library is Puma's own, since other code may load that class
    # later.
    def self.cluster_class
      require "puma/cluster" if PumaLibrary.own?
      ::Puma.const_set(:Cluster, Class.new { attr_reader :workers, :options }) unless
        ::Puma.const_defined?(:Cluster)
      ::Puma::Cluster
    end
    private_class_method :cluster_class
  end
end

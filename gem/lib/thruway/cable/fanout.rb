# frozen_string_literal: true

require "monitor"

require_relative "../server/client"

module Thruway
  module Cable
    # Passes the messages of broadcastings on to clients. Each is subscribed to once, whatever the
    # number of clients, and a message is made once for all subscriptions of the same name.
    class Fanout
      # One subscription of one client.
      Subscriber = Struct.new(:identifier, :client) do
        # Two of them are never the same.
        def ==(other) = equal?(other)
        alias_method :eql?, :==
        def hash = object_id
      end

      # The clients of one broadcasting.
      class Stream
        def initialize
          @groups = {}
          @lock = Mutex.new
        end

        def add(subscriber)
          @lock.synchronize do
            group = @groups[subscriber.identifier] ||= {}
            group[subscriber] = subscriber.client
          end
        end

        # Whether none is left.
        def remove(subscriber)
          @lock.synchronize do
            group = @groups[subscriber.identifier]
            group&.delete(subscriber)
            @groups.delete(subscriber.identifier) if group&.empty?
            @groups.empty?
          end
        end

        # A message as the adapters have it: JSON, which stands in ours as it is. Some adapters do
        # not say that it is UTF-8.
        def call(message)
          message = message.dup.force_encoding(Encoding::UTF_8).scrub
          groups = @lock.synchronize { @groups.transform_values(&:values) }
          groups.each do |identifier, clients|
            text = %({"identifier":#{ActiveSupport::JSON.encode(identifier)},"message":#{message}})
            Client.broadcast(clients, text)
          end
        end
      end

      attr_reader :pubsub

      def initialize(pubsub)
        @pubsub = pubsub
        @streams = {}
        @waiting = {}
        @lock = Monitor.new
      end

      # Calls the block when messages of the broadcasting come.
      def subscribe(broadcasting, subscriber, &confirm)
        stream, is_new, waits = @lock.synchronize do
          is_new = !@streams.key?(broadcasting)
          stream = @streams[broadcasting] ||= Stream.new
          stream.add(subscriber)
          @waiting[stream] = [] if is_new
          [stream, is_new, is_new || @waiting[stream]&.push(confirm)]
        end
        if is_new
          @pubsub.subscribe(broadcasting, stream, -> { confirm_all(stream, confirm) })
        elsif !waits
          confirm.call
        end
      end

      def unsubscribe(broadcasting, subscriber)
        stream = @lock.synchronize do
          stream = @streams[broadcasting]
          next unless stream&.remove(subscriber)

          @streams.delete(broadcasting)
        end
        @pubsub.unsubscribe(broadcasting, stream) if stream
      end

      private

      def confirm_all(stream, first)
        others = @lock.synchronize { @waiting.delete(stream) } || []
        [first, *others].each(&:call)
      end
    end
  end
end

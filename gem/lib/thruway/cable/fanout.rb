# frozen_string_literal: true

require "monitor"

require_relative "../server/client"

module Thruway
  module Cable
    # Passes the messages of broadcastings on to clients. Each broadcasting has a single
    # subscription, whatever the number of clients, and a message is encoded once for all
    # subscriptions with the same identifier.
    class Fanout
      # A client's subscription.
      Subscriber = Struct.new(:identifier, :client) do
        # Subscribers compare by identity: a client may subscribe twice.
        def ==(other) = equal?(other)
        alias_method :eql?, :==
        def hash = object_id
      end

      # The clients of a broadcasting.
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

        # Removes a subscriber. Returns whether no subscriber is left.
        def remove(subscriber)
          @lock.synchronize do
            group = @groups[subscriber.identifier]
            group&.delete(subscriber)
            @groups.delete(subscriber.identifier) if group&.empty?
            @groups.empty?
          end
        end

        # Sends a message of the adapter. The message is JSON and is embedded unchanged. Some
        # adapters do not mark it as UTF-8.
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

      # Calls the block once the adapter has confirmed the subscription.
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

      # Calls the callbacks that wait for the adapter's confirmation: the first subscriber's
      # callback, and then all others.
      def confirm_all(stream, first)
        others = @lock.synchronize { @waiting.delete(stream) } || []
        [first, *others].each(&:call)
      end
    end
  end
end

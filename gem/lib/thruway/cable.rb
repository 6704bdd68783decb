# frozen_string_literal: true

require "action_cable"
# Rails' timers need concurrent-ruby. Rails requires it with its worker pool, perhaps later.
require "concurrent"

require_relative "cable/fanout"
require_relative "cable/socket"

module Thruway
  # ActionCable on the server's own WebSockets. The engine holds the connections, which need neither
  # threads nor a second event loop. Connections, channels and adapters remain those of Rails. If
  # another server runs the application, nothing changes.
  #
  # The module relies on four private methods of Rails, which are the same from 6.1 to 8.1.
  # `install` prepends a module to the class of each method.
  module Cable
    # The module that makes `ActionCable::Connection::WebSocket` use the server's WebSocket.
    module WebSocket
      def initialize(env, event_target, event_loop, **options)
        if env["rack.upgrade?"] == :websocket
          protocols = options.fetch(:protocols) { ActionCable::INTERNAL[:protocols] }
          @websocket = Socket.new(env, event_target, protocols)
        else
          super
        end
      end

      def thruway? = @websocket.is_a?(Socket)

      # The `Thruway::Client`; nil before the connection is open.
      def client = @websocket.client
    end

    # The module for `ActionCable::Connection::Base`. A thread of the server handles the events of a
    # client in turn, instead of Rails' own pool of threads.
    module Connection
      def send_async(method, *arguments)
        return super unless thruway?

        worker_pool.invoke(self, method, *arguments, connection: self)
      end

      def thruway? = websocket.thruway?

      def client = websocket.client
    end

    # The module for `ActionCable::Server::Base`. A heartbeat is encoded once for all clients.
    module Server
      # The base of Rails' adapters that reach the clients of a single process.
      LOCAL_ADAPTER = "ActionCable::SubscriptionAdapter::Inline"

      # Warns once if the adapter reaches only the clients of a single worker out of several.
      def call(env)
        warn_of_adapter(env) if env["rack.multiprocess"] && !@adapter_is_known
        super
      end

      def setup_heartbeat_timer
        @heartbeat_timer ||= event_loop.timer(ActionCable::Server::Connections::BEAT_INTERVAL) do
          beat_all
        end
      end

      # The fan-out of messages to the clients of a broadcasting.
      def fanout
        mutex.synchronize do
          @fanout = Fanout.new(pubsub) unless @fanout&.pubsub.equal?(pubsub)
          @fanout
        end
      end

      private

      def warn_of_adapter(env)
        @adapter_is_known = true
        return if pubsub.class.ancestors.none? { |ancestor| ancestor.name == LOCAL_ADAPTER }

        name = config.cable["adapter"].inspect
        env["rack.errors"].puts(
          "thruway: ActionCable's adapter #{name} reaches the clients of one worker only; with " \
          "several workers, set redis, postgresql or solid_cable in config/cable.yml"
        )
      end

      def beat_all
        ours, others = connections.dup.partition(&:thruway?)
        beat = { type: ActionCable::INTERNAL[:message_types][:ping], message: Time.now.to_i }
        Client.broadcast(ours.filter_map(&:client), ActiveSupport::JSON.encode(beat))
        others.each(&:beat)
      end
    end

    # The module for `ActionCable::Channel::Base`. Streams that pass messages on unchanged share a
    # subscription and a message.
    module Channel
      def stream_from(broadcasting, callback = nil, coder: nil, &block)
        return super if callback || block || coder || !connection.thruway? || transmits_itself?

        broadcasting = String(broadcasting)
        defer_subscription_confirmation!
        shared = Fanout::Subscriber.new(identifier, connection.client)
        shared_streams[broadcasting] ||= shared
        connection.server.event_loop.post { share_stream(broadcasting, shared) }
      end

      def stop_stream_from(broadcasting)
        super unless unshare_stream(String(broadcasting))
      end

      def stop_all_streams
        shared_streams.keys.each { |broadcasting| unshare_stream(broadcasting) }
        super
      end

      private

      def share_stream(broadcasting, shared)
        # The stream may have been stopped in the meantime, or be shared already. The channel still
        # waits for its confirmation.
        return ensure_confirmation_sent unless shared_streams[broadcasting].equal?(shared)

        connection.server.fanout.subscribe(broadcasting, shared) do
          ensure_confirmation_sent
          logger.info "#{self.class.name} is streaming from #{broadcasting}"
        end
      end

      def unshare_stream(broadcasting)
        shared = shared_streams.delete(broadcasting) or return
        connection.server.fanout.unsubscribe(broadcasting, shared)
        logger.info "#{self.class.name} stopped streaming from #{broadcasting}"
        true
      end

      def shared_streams = @_shared_streams ||= {}

      # Whether the channel overrides `transmit`. Such a channel must see each message.
      def transmits_itself? = method(:transmit).owner != ActionCable::Channel::Base
    end

    def self.install
      ActionCable::Connection::WebSocket.prepend(WebSocket)
      ActionCable::Connection::Base.prepend(Connection)
      ActionCable::Server::Base.prepend(Server)
      ActionCable::Channel::Base.prepend(Channel)
    end

    install
  end
end

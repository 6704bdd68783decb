# frozen_string_literal: true

require "rackup/handler"
require "thruway/handler"

module Rackup
  module Handler
    # For `rackup -s thruway` and `rails server -u thruway`, with Rack 3.
    module Thruway
      module_function

      def run(app, **options, &block)
        ::Thruway::Handler.run(app, **options, &block)
      end

      def valid_options
        ::Thruway::Handler.valid_options
      end
    end

    register :thruway, Thruway
  end
end

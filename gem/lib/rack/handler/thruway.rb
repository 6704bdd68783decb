# frozen_string_literal: true

require "rack/handler"
require "thruway/handler"

module Rack
  module Handler
    # For `rackup -s thruway` and `rails server -u thruway`, with Rack 2. Rails prints the name of
    # the module.
    module Thruway
      extend ::Thruway::Handler
    end

    register :thruway, "Rack::Handler::Thruway"
  end
end

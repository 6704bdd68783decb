# frozen_string_literal: true

require "rack/handler"
require "thruway/handler"

module Rack
  module Handler
    # For `rackup -s thruway` and `rails server -u thruway`, with Rack 2.
    Thruway = ::Thruway::Handler

    register :thruway, "Rack::Handler::Thruway"
  end
end

# frozen_string_literal: true

# A page of Rails as pages are that ask another service: three queries, and a call that takes the
# service at SERVICE_PORT some time. `cargo x bench serve-rails-waits` compares servers by it.
require "rails"
require "action_controller/railtie"
require "action_view/railtie"
require "active_record/railtie"
require "net/http"
require "tmpdir"

SERVICE = URI("http://127.0.0.1:#{ENV.fetch("SERVICE_PORT")}/")

class WaitingRails < Rails::Application
  config.root = __dir__
  config.load_defaults Rails::VERSION::STRING.to_f
  config.eager_load = true
  config.secret_key_base = "for a benchmark"
  config.logger = Logger.new(nil)
  config.consider_all_requests_local = false
  config.hosts.clear
  # Thruway sets the isolation itself.
  config.active_support.isolation_level = :fiber if defined?(Falcon)
  routes.append do
    root to: proc { [200, {}, ["ready"]] }
    get "page", to: "pages#show"
  end
end

class Stop < ActiveRecord::Base; end

class PagesController < ActionController::Base
  def show
    @stop = Stop.find(1 + rand(100))
    @next = Stop.where("id > ?", @stop.id).order(:id).limit(10).to_a
    @count = Stop.count
    @answer = Net::HTTP.get(SERVICE)
  end
end

folder = Dir.mktmpdir("thruway-bench-rails")
at_exit { FileUtils.rm_rf(folder) }
# As many connections as fibers and threads may ask for.
ENV["DATABASE_URL"] = "sqlite3:#{folder}/stops.sqlite3?pool=128"
WaitingRails.initialize!
ActiveRecord::Schema.verbose = false
ActiveRecord::Schema.define do
  create_table(:stops) { |table| table.string :name }
end
Stop.insert_all(Array.new(200) { |number| { name: "Stop #{number}" } })
# Workers open their own connections.
ActiveRecord::Base.connection_handler.clear_all_connections!

run WaitingRails

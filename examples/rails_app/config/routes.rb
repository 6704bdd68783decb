# frozen_string_literal: true

Rails.application.routes.draw do
  root "stops#index"
  resources :stops, only: %i[index show] do
    resources :notes, only: :create
  end
  get "download", to: "downloads#show"
  get "slow", to: "trials#slow"
  get "busy", to: "trials#busy"
  get "broken", to: "trials#broken"
  get "up", to: "trials#up"
end
